// Charts of a deployment: one request for all panels, drawn when scrolled into view, colours from
// CSS variables (a theme switch asks nothing), gaps stay gaps.
(function () {
  "use strict";
  const box = document.getElementById("charts");
  if (!box || !window.Plotly) return;
  const text = box.dataset, zone = text.zone || "UTC";
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const panels = new Map(Array.from(box.querySelectorAll("[data-panel]"), (element) => [element.dataset.panel, { element, visible: false }]));
  let data = null, asked = 0;

  // Local wall-clock strings: plotly draws dates without a zone as they are written.
  const clock = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const local = (at) => clock.format(new Date(at));
  const fill = (template, values) => template.replace(/\{(\w+)\}/g, (all, name) => (name in values ? values[name] : all));

  const latency = (panel) => {
    const scale = panel.objective !== null && panel.objective !== undefined ? panel.objective : 1;
    return scale >= 1 ? { factor: 1, unit: " s", digits: 2 } : { factor: 1000, unit: " ms", digits: 0 };
  };
  const kinds = {
    ttft: { lines: ["p50", "p95", "p99"], scale: latency },
    tpot: { lines: ["p50", "p95", "p99"], scale: () => ({ factor: 1000, unit: " ms", digits: 0 }) },
    busy: { lines: ["decode", "prefill"], scale: () => ({ factor: 100, unit: "%", digits: 0 }) },
    flow: { lines: ["good", "demand"], scale: () => ({ factor: 1, unit: " req/s", digits: 1 }) },
  };
  const names = { p50: "P50", p95: "P95", p99: "P99" };
  const say = (value, scale) => (value === null || value === undefined ? "–" : (value * scale.factor).toFixed(scale.digits) + scale.unit);
  const last = (values) => { for (let i = values.length - 1; i >= 0; i -= 1) if (values[i] !== null) return values[i]; return null; };
  const highest = (values) => values.reduce((top, value) => (value !== null && (top === null || value > top) ? value : top), null);
  const nameOf = (panel, line) => {
    const word = panel.element.querySelector('[data-word="' + line + '"]');
    return names[line] || (word ? word.textContent.trim() : line);
  };

  // The breach that goes on now: index of its first point, or -1.
  function breach(panel) {
    const values = (panel.p95 || []), limit = panel.objective;
    if (limit === null || limit === undefined) return -1;
    let first = -1;
    for (let i = values.length - 1; i >= 0; i -= 1) {
      if (values[i] === null) continue;
      if (values[i] <= limit) break;
      first = i;
    }
    return first;
  }

  // The words of the objective stand at the end where the lines keep away from it.
  function freerAtLeft(panel, objective) {
    const values = [...(panel.p95 || []), ...(panel.p99 || [])], half = (panel.p95 || []).length;
    const near = (from, to) => {
      let least = Infinity;
      for (const line of [values.slice(0, half), values.slice(half)]) {
        line.slice(Math.floor(from * half), Math.ceil(to * half)).forEach((value) => { if (value !== null) least = Math.min(least, Math.abs(value - objective)); });
      }
      return least;
    };
    return near(0, 0.25) > near(0.75, 1);
  }

  function layout(times, scale, shapes, notes, narrow) {
    return {
      margin: { l: scale.unit === " req/s" ? 54 : 46, r: 10, t: 10, b: 24 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: css("--font-ui"), size: 11, color: css("--chart-axis") }, showlegend: false, hovermode: "x unified",
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      hoverlabel: { bgcolor: css("--surface"), bordercolor: css("--line-strong"), font: { color: css("--ink"), size: 12 } },
      xaxis: { type: "date", gridcolor: "rgba(0,0,0,0)", linecolor: css("--line"), tickformat: "%H:%M", hoverformat: "%H:%M:%S", nticks: narrow ? 4 : 7, range: [times[0], times[times.length - 1]], zeroline: false, showspikes: true, spikethickness: 1, spikedash: "solid", spikecolor: css("--line-strong"), spikemode: "across" },
      yaxis: { gridcolor: css("--chart-grid"), zeroline: false, rangemode: "tozero", fixedrange: true, ticksuffix: scale.unit, showticksuffix: "last", nticks: 6 },
      shapes, annotations: notes,
    };
  }
  const hline = (y, colour) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: colour, width: 1.4, dash: "dash" } });
  const note = (extra) => Object.assign({ showarrow: false, font: { size: 11, color: css("--chart-slo") } }, extra);

  function draw(name) {
    const panel = panels.get(name), found = data && data.panels && data.panels[name];
    const plot = panel.element.querySelector("[data-plot]");
    if (!data) return;
    const kind = kinds[name], scale = found ? kind.scale(found) : null;
    const lines = found ? kind.lines.filter((line) => (found[line] || []).some((value) => value !== null)) : [];
    kind.lines.forEach((line) => {
      const target = panel.element.querySelector('[data-last="' + line + '"]');
      if (target) target.textContent = found && found[line] ? say(last(found[line]), scale) : "–";
    });
    if (!lines.length) { message(plot, text.tEmpty); return; }
    const start = Date.parse(data.t0), times = Array.from({ length: data.n }, (unused, i) => local(start + i * data.step * 1000));
    const ink = css("--ink"), ink2 = css("--ink-2"), shapes = [], notes = [];
    const looks = {
      p50: { color: ink2, width: 1.3, dash: "2px,3px" }, p95: { color: ink, width: 2.2 }, p99: { color: ink2, width: 1.3, dash: "7px,3px" },
      prefill: { color: css("--prefill"), width: 2.4 }, decode: { color: css("--decode"), width: 2.2 },
      good: { color: css("--ok"), width: 2.2 }, demand: { color: ink2, width: 1.5, dash: "7px,3px" },
    };
    const fills = {
      prefill: { fill: "tonexty", fillcolor: css("--prefill-soft") },
      good: { fill: "tozeroy", fillcolor: css("--ok-soft") }, demand: { fill: "tonexty", fillcolor: css("--crit-soft") },
    };
    const traces = lines.map((line) => Object.assign({
      x: times, y: found[line].map((value) => (value === null ? null : value * scale.factor)), name: nameOf(panel, line), mode: "lines", type: "scatter",
      connectgaps: false, line: looks[line], hovertemplate: "%{y:." + scale.digits + "f}" + scale.unit + "<extra>" + nameOf(panel, line) + "</extra>",
    }, lines.length > 1 ? fills[line] || {} : {}));
    const tint = breach((data.panels.ttft && name === "ttft") ? data.panels.ttft : name === "tpot" ? found : data.panels.ttft || {});
    if (tint >= 0) shapes.push({ type: "rect", xref: "x", yref: "paper", x0: times[tint], x1: times[times.length - 1], y0: 0, y1: 1, fillcolor: css("--crit"), opacity: 0.06, line: { width: 0 }, layer: "below" });
    if (found.objective !== null && found.objective !== undefined) {
      shapes.push(hline(found.objective * scale.factor, css("--chart-slo")));
      const left = freerAtLeft(found, found.objective);
      notes.push(note({ xref: "paper", x: left ? 0 : 1, xanchor: left ? "left" : "right", y: found.objective * scale.factor, yanchor: "bottom", text: fill(text.tObjective, { value: say(found.objective, scale) }) }));
      if (tint > 0 && name === "ttft") notes.push(note({ x: times[tint], xanchor: "left", yref: "paper", y: 0, yanchor: "bottom", text: " " + fill(text.tSince, { time: times[tint].slice(11, 16) }) }));
    }
    if (name === "busy") {
      if (found.limit) { shapes.push(hline(found.limit * 100, css("--chart-slo"))); notes.push(note({ xref: "paper", x: 0, xanchor: "left", y: found.limit * 100, yanchor: "bottom", text: fill(text.tLimit, { value: Math.round(found.limit * 100) + "%" }) })); }
      const a = last(found.prefill || []), b = last(found.decode || []);
      if (a !== null && b !== null && Math.abs(a - b) >= 0.1) notes.push(note({ xref: "paper", x: 0.98, xanchor: "right", y: (a + b) * 50, text: fill(text.tGap, { value: Math.round(Math.abs(a - b) * 100) }), font: { size: 12, color: ink } }));
    }
    if (name === "flow") {
      const demand = last(found.demand || []), good = last(found.good || []);
      if (demand !== null && good !== null && demand - good > 0.05 * demand) notes.push(note({ xref: "paper", x: 0.98, xanchor: "right", y: (demand + good) / 2, text: fill(text.tMissed, { value: (demand - good).toFixed(1) }), font: { size: 12, color: ink } }));
    }
    (data.events || []).forEach((event) => {
      const at = local(Date.parse(event.t));
      shapes.push({ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: ink2, width: 1, dash: "dot" } });
      notes.push(note({ x: at, yref: "paper", y: 1, yanchor: "top", xanchor: "left", text: " " + (event.id || "≠"), hovertext: event.label || "", font: { size: 10, color: ink2 } }));
    });
    const look = layout(times, scale, shapes, notes, box.clientWidth < 760);
    if (name === "busy") look.yaxis.range = [0, 104];
    else {
      // From zero, with room for the objective and its words.
      const top = Math.max(...lines.map((line) => highest(found[line]) || 0), found.objective || 0) * scale.factor;
      look.yaxis.range = [0, top > 0 ? top * 1.12 : 1];
    }
    if (!plot.classList.contains("js-plotly-plot")) plot.replaceChildren();
    window.Plotly.react(plot, traces, look, { displayModeBar: false, responsive: true, doubleClick: false });
    if (!panel.zooms) { panel.zooms = true; plot.on("plotly_relayout", zoom); }
    label(panel, found, lines, scale, plot);
    if (!panel.element.querySelector("[data-table]").hidden) table(panel, name);
  }

  function label(panel, found, lines, scale, plot) {
    const line = lines.includes("p95") ? "p95" : lines[lines.length - 1];
    const values = { name: panel.element.dataset.name + " " + nameOf(panel, line), last: say(last(found[line]), scale), high: say(highest(found[line]), scale), objective: say(found.objective, scale) };
    const known = found.objective !== null && found.objective !== undefined;
    plot.setAttribute("aria-label", fill(known ? text.tSummaryObjective : text.tSummary, values));
  }
  function message(plot, words) {
    if (plot.classList.contains("js-plotly-plot")) window.Plotly.purge(plot);
    const span = document.createElement("span");
    span.className = "chart-msg";
    span.textContent = words;
    plot.replaceChildren(span);
  }
  function zoom(change) {
    if (!change["xaxis.range[0]"]) return;
    const address = new URL(location.href), tidy = (value) => String(value).replace(" ", "T").slice(0, 19);
    address.searchParams.set("from", tidy(change["xaxis.range[0]"]));
    address.searchParams.set("to", tidy(change["xaxis.range[1]"]));
    location.assign(address);
  }
  function table(panel, name) {
    const target = panel.element.querySelector("[data-table]"), found = data && data.panels && data.panels[name];
    if (!found) return;
    const kind = kinds[name], scale = kind.scale(found), lines = kind.lines.filter((line) => found[line]), start = Date.parse(data.t0);
    const rows = document.createElement("table"), head = rows.createTHead().insertRow(), body = rows.createTBody();
    const cell = (row, tag, words, scope) => { const item = document.createElement(tag); item.textContent = words; if (scope) item.scope = scope; row.append(item); };
    cell(head, "th", text.tTime, "col");
    lines.forEach((line) => cell(head, "th", nameOf(panel, line), "col"));
    for (let i = data.n - 1; i >= 0; i -= 1) {
      const row = body.insertRow();
      cell(row, "th", local(start + i * data.step * 1000), "row");
      lines.forEach((line) => cell(row, "td", say(found[line][i], scale)));
    }
    target.replaceChildren(rows);
  }
  box.addEventListener("click", (event) => {
    const button = event.target.closest("[data-toggle-table]");
    if (!button) return;
    const element = button.closest("[data-panel]"), name = element.dataset.panel;
    const target = element.querySelector("[data-table]"), plot = element.querySelector("[data-plot]");
    const open = target.hidden;
    if (open) table(panels.get(name), name);
    target.hidden = !open;
    plot.hidden = open;
    button.textContent = open ? text.tHide : text.tTable;
    button.setAttribute("aria-expanded", String(open));
    if (!open) draw(name);
  });

  function range() {
    if (text.live !== "1") return { from: text.from, to: text.to };
    const iso = (at) => new Date(at).toISOString().slice(0, 19) + "Z", now = Date.now();
    return { from: iso(now - Number(text.seconds) * 1000), to: iso(now) };
  }
  async function load() {
    const mine = (asked += 1), span = range();
    const address = text.series + "?" + new URLSearchParams({ panels: "ttft,tpot,busy,flow", from: span.from, to: span.to });
    try {
      const answer = await fetch(address, { headers: { Accept: "application/json" }, credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      if (mine !== asked) return;
      data = found;
      panels.forEach((panel, name) => { if (panel.visible) draw(name); });
    } catch (error) {
      // Earlier values stay; only a first failure says so in the block.
      if (!data) panels.forEach((panel) => { message(panel.element.querySelector("[data-plot]"), text.tFailed); });
    }
    document.documentElement.dataset.charts = data ? "ready" : "failed";
  }
  const watch = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    const panel = panels.get(entry.target.dataset.panel);
    if (panel.visible) return;
    panel.visible = true;
    draw(entry.target.dataset.panel);
  }), { rootMargin: "200px" });
  panels.forEach((panel) => watch.observe(panel.element));
  document.addEventListener("fulcrum:theme", () => panels.forEach((panel, name) => { if (panel.visible) draw(name); }));
  document.addEventListener("fulcrum:refreshed", load);
  // Print: fixed width, one below the other.
  addEventListener("beforeprint", () => panels.forEach((panel) => {
    const plot = panel.element.querySelector(".js-plotly-plot");
    if (plot) window.Plotly.relayout(plot, { width: 640, height: 220, autosize: false });
  }));
  addEventListener("afterprint", () => panels.forEach((panel) => {
    const plot = panel.element.querySelector(".js-plotly-plot");
    if (plot) window.Plotly.relayout(plot, { width: null, height: null, autosize: true });
  }));
  load();
})();
