// Live refresh, ages, keyboard, theme, copying. No words here: they come from data attributes.
(function () {
  "use strict";
  const root = document.documentElement;
  const $ = (selector, from) => (from || document).querySelector(selector);
  const $$ = (selector, from) => Array.from((from || document).querySelectorAll(selector));

  // The browser's zone; the account's own zone wins on the server.
  const cookie = (name, value) => {
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = name + "=" + value + "; Path=/; Max-Age=31536000; SameSite=Lax" + secure;
  };
  try {
    cookie("tz", Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  } catch (error) { /* an old browser without zones stays on UTC */ }

  // ---- live -------------------------------------------------------------
  const toggle = $("#live-toggle");
  const state = { paused: false, signedOut: false, failed: false, lastAsk: Date.now(), skew: 0, hover: false, held: 0 };
  const live = () => $("#live");
  const seconds = () => Number((live() || { dataset: {} }).dataset.interval || 0);

  function readSkew() {
    const at = live() && Date.parse(live().dataset.now || "");
    if (at) state.skew = Date.now() - at;
  }
  function words(age) {
    const data = toggle.dataset;
    const text = age < 90 ? data.s.replace("{n}", Math.max(0, Math.round(age)))
      : age < 5400 ? data.min.replace("{n}", Math.floor(age / 60))
        : data.h.replace("{n}", Math.floor(age / 3600));
    return data.ago.replace("{age}", text);
  }
  function showAge() {
    if (!toggle || !live()) return;
    const asOf = Date.parse(live().dataset.asOf || "");
    const age = asOf ? (Date.now() - state.skew - asOf) / 1000 : null;
    const every = seconds();
    const word = state.paused ? toggle.dataset.paused : every ? toggle.dataset.live : toggle.dataset.off;
    const mode = state.paused ? "paused" : !every ? "off" : age === null || age > Math.max(60, every * 5) ? "old" : "live";
    if (toggle.dataset.state !== mode) toggle.dataset.state = mode;
    const label = $(".live-word", toggle), span = $(".live-age", toggle);
    if (label.textContent !== word) label.textContent = word;
    span.textContent = age === null ? toggle.dataset.none : words(age);
    toggle.title = toggle.dataset.hint;
    toggle.setAttribute("aria-pressed", String(!state.paused && every > 0));
  }
  // Off while hidden, paused, signed out, a dialog or menu is open, or text is selected.
  function mayAsk() {
    if (!seconds() || state.paused || state.signedOut || document.hidden) return false;
    if ($("dialog[open]") || $(":popover-open")) return false;
    const picked = document.getSelection();
    return !(picked && !picked.isCollapsed && live().contains(picked.anchorNode));
  }
  function ask() {
    state.lastAsk = Date.now();
    live().dispatchEvent(new Event("live-refresh"));
  }
  function tick() {
    showAge();
    if (live() && Date.now() - state.lastAsk >= seconds() * 1000 && mayAsk()) ask();
  }
  if (toggle) {
    toggle.addEventListener("click", () => {
      if (!seconds()) return;
      state.paused = !state.paused;
      if (!state.paused) ask();
      showAge();
    });
  }
  if (live()) {
    readSkew();
    showAge();
    setInterval(tick, 1000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
  }

  // Banners of the page itself: signed out while viewing, server gone.
  function banner() {
    const box = $("#lost");
    if (!box) return;
    const shown = { "signed-out": state.signedOut, offline: state.failed && !state.signedOut };
    $$("[data-when]", box).forEach((item) => { item.hidden = !shown[item.dataset.when]; });
    box.hidden = !state.signedOut && !state.failed;
  }
  document.addEventListener("signed-out", () => { state.signedOut = true; banner(); });

  // Rows never jump under the pointer: a refresh keeps the order, a chip offers the new one.
  const rowIds = (from) => $$("tr[data-row]", from).map((row) => row.id);
  function holdOrder(ctx) {
    const chip = $("#moved");
    if (!state.hover || !live().dataset.tableHover) { if (chip) chip.hidden = true; return; }
    const next = new DOMParser().parseFromString(ctx.text, "text/html");
    const now = rowIds(live()), then = rowIds(next);
    const moved = then.filter((id, place) => now.indexOf(id) !== place).length;
    if (moved && now.length === then.length && now.every((id) => then.includes(id))) {
      const body = $("tbody", next);
      now.forEach((id) => body.append(next.getElementById(id)));
      const note = next.getElementById("moved");
      if (note) { note.hidden = false; note.textContent = note.dataset.text.replace("{n}", moved); }
      // The held order is not the server's answer: without a tag the next request gets it whole.
      next.getElementById("live").dataset.etag = "";
      ctx.text = next.body.innerHTML;
    }
  }
  document.addEventListener("pointerover", (event) => { state.hover = Boolean(event.target.closest && event.target.closest("tbody")); });
  document.addEventListener("click", (event) => { if (event.target.closest("#moved")) { state.hover = false; ask(); } });

  document.addEventListener("htmx:before:request", (event) => {
    const ctx = event.detail.ctx;
    if (ctx.sourceElement === live() && live().dataset.etag) ctx.request.headers["If-None-Match"] = live().dataset.etag;
  });
  document.addEventListener("htmx:before:response", (event) => {
    // An error answer never replaces figures that people are reading.
    const failed = event.detail.ctx.response.status >= 400;
    state.failed = failed;
    banner();
    if (failed) event.preventDefault();
  });
  document.addEventListener("htmx:after:request", (event) => {
    if (event.detail.ctx.sourceElement === live() && event.detail.ctx.response.status === 200) holdOrder(event.detail.ctx);
  });
  document.addEventListener("htmx:error", () => { state.failed = true; banner(); });
  let said = live() && live().dataset.status;
  document.addEventListener("htmx:after:swap", () => {
    readSkew();
    showAge();
    const status = live() && live().dataset.status;
    if (status && status !== said) $("#announce").textContent = status;
    said = status;
    document.dispatchEvent(new Event("fulcrum:refreshed"));
  });
  // A person's open <details> stays open across a morph.
  if (window.htmx) {
    window.htmx.registerExtension("keep-open", {
      htmx_before_morph_attr: (element, detail) => !(detail.attrName === "open" && element.tagName === "DETAILS"),
    });
  }

  // ---- theme ------------------------------------------------------------
  function setTheme(name) {
    root.dataset.theme = name === "system" ? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light") : name;
    if (name === "system") root.dataset.themeSystem = "1"; else delete root.dataset.themeSystem;
    document.dispatchEvent(new Event("fulcrum:theme"));
  }
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-theme-form]") || !event.submitter) return;
    event.preventDefault();
    const body = new FormData(form, event.submitter);
    setTheme(body.get("theme"));
    $$("[name=theme]", form).forEach((item) => item.toggleAttribute("aria-current", item === event.submitter));
    fetch(form.action, { method: "POST", body, redirect: "manual" });
    const menu = form.closest("[popover]");
    if (menu) menu.hidePopover();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (root.dataset.themeSystem) setTheme("system"); });

  // ---- copying, filters -------------------------------------------------
  function copied(button, text) {
    navigator.clipboard.writeText(text).then(() => {
      const before = button.textContent;
      button.textContent = button.dataset.done;
      setTimeout(() => { button.textContent = before; }, 1600);
    });
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy],[data-copy-link]");
    if (!button) return;
    if (button.dataset.copy) { copied(button, button.dataset.copy); return; }
    const range = $("#m-range"), address = new URL(location.href);
    address.searchParams.set("from", range.dataset.from);
    address.searchParams.set("to", range.dataset.to);
    copied(button, address.href);
  });
  document.addEventListener("change", (event) => { if (event.target.closest("#filters select")) event.target.form.requestSubmit(); });

  // ---- keyboard ---------------------------------------------------------
  let row = -1, waitingForGo = 0;
  function go(rows, step) {
    row = Math.min(rows.length - 1, Math.max(0, row + step));
    const link = $("[data-open]", rows[row]);
    if (link) link.focus();
  }
  function shift(direction) {
    const range = $("#m-range");
    if (!range) return;
    const from = Date.parse(range.dataset.from), to = Date.parse(range.dataset.to), half = direction * (to - from) / 2;
    const address = new URL(location.href), iso = (at) => new Date(at).toISOString().slice(0, 19) + "Z";
    address.searchParams.set("from", iso(from + half));
    address.searchParams.set("to", iso(Math.min(Date.now(), to + half)));
    location.assign(address);
  }
  document.addEventListener("keydown", (event) => {
    if (document.body.dataset.keys !== "on" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if ($("dialog[open]")) return;
    const key = event.key;
    if (waitingForGo > Date.now()) {
      waitingForGo = 0;
      const place = { f: "fleet", d: "deployments", c: "commands" }[key];
      const link = place && $('.rail [data-key="' + place + '"]');
      if (link) { event.preventDefault(); location.assign(link.href); }
      return;
    }
    const rows = $$("[data-row]");
    const acts = {
      "?": () => $("#help").showModal(),
      "/": () => $("#q").focus(),
      g: () => { waitingForGo = Date.now() + 1500; },
      j: () => rows.length && go(rows, 1),
      k: () => rows.length && go(rows, -1),
      t: () => { const menu = $("#m-range"); if (menu) menu.togglePopover(); },
      l: () => toggle && toggle.click(),
      "[": () => shift(-1),
      "]": () => shift(1),
      a: () => { const link = $("[data-review]"); if (link) location.assign(link.href); },
    };
    if (acts[key]) { event.preventDefault(); acts[key](); }
  });
})();
