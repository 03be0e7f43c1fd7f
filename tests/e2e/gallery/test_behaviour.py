"""What people do with the page: first screen, live refresh, charts, keyboard, theme."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from apps.console import acts
from tests.support import pages

from .conftest import draw_all, until

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

DEPLOYMENT = "/deployments/assist-chat-prod/"
REFRESH = "document.getElementById('live').dispatchEvent(new Event('live-refresh'))"


def bottom(page: Any, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box is not None, selector
    return float(box["y"] + box["height"])


@pytest.mark.parametrize("address", [DEPLOYMENT, "/deployments/chat-pd/"])
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_first_screen_is_complete_on_a_desktop(address: str, language: str, visit: Any) -> None:
    page = visit(address, language=language)
    for part in ("header", "diagnosis", "path", "figures", "recommendation"):
        assert bottom(page, f"#block-{part}") <= 900, part
    assert bottom(page, "[data-review]") <= 900


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_first_screen_is_complete_on_a_phone(language: str, visit: Any) -> None:
    page = visit(DEPLOYMENT, size="phone", language=language, touch=True)
    bar = page.locator("#action-bar").bounding_box()
    assert bar is not None and bar["y"] + bar["height"] == pytest.approx(844, abs=1)
    for selector in ("#block-diagnosis", "#rc", "#block-recommendation .diff"):
        assert bottom(page, selector) <= bar["y"], selector
    button = page.locator("#action-bar .btn.pri").bounding_box()
    assert button is not None and button["height"] >= 44


def test_targets_are_large_enough_for_a_finger(visit: Any) -> None:
    page = visit(DEPLOYMENT, size="phone", touch=True)
    small = page.eval_on_selector_all(
        "a, button, select, input:not([type=hidden])",
        """found => found.filter(e => e.checkVisibility() && !e.closest('[popover]'))
          .map(e => [e.getBoundingClientRect(), e.outerHTML.slice(0, 80)])
          .filter(([b]) => b.width && (b.height < 24 || b.width < 24) && b.width > 1)
          .map(([b, html]) => Math.round(b.width) + 'x' + Math.round(b.height) + ' ' + html)""",
    )
    assert small == []


def test_a_refresh_changes_figures_and_keeps_everything_else(visit: Any, sample: Any) -> None:
    page = visit(DEPLOYMENT)
    draw_all(page)
    page.evaluate("document.querySelector('[data-panel=ttft] .js-plotly-plot').dataset.kept = '1'")
    page.locator("#d-alts summary").click()
    later = replace(pages.deployment().figures[0], measurement=pages.m(2.05, pages.Unit.SECONDS))
    sample.pages["deployments"] = {
        "assist-chat-prod": replace(
            pages.deployment(), etag="e2", figures=(later, *pages.deployment().figures[1:])
        )
    }
    page.evaluate(REFRESH)
    page.get_by_text("2.05").first.wait_for()
    assert page.locator("[data-panel=ttft] .js-plotly-plot[data-kept='1'] .main-svg").count() > 0
    assert page.locator("#d-alts").get_attribute("open") is not None
    assert page.locator("main").evaluate("e => document.activeElement !== null && e.isConnected")


def test_an_unchanged_page_is_answered_304_and_swaps_nothing(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    with page.expect_response("**/blocks/live/**") as first:
        page.evaluate(REFRESH)
    assert first.value.status == 200
    until(page, "document.getElementById('live').dataset.etag !== ''")
    page.evaluate("document.getElementById('dg').textContent = 'untouched'")
    with page.expect_response("**/blocks/live/**") as second:
        page.evaluate(REFRESH)
    assert second.value.status == 304
    assert page.locator("#dg").text_content() == "untouched"


def test_the_age_counts_from_the_sample(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    assert re.search(r"\b[6-8] s ago", page.locator("#live-toggle").inner_text())
    until(page, "/ ?(9|10|11) s ago/.test(document.getElementById('live-toggle').innerText)")


def test_live_rests_while_paused_or_a_menu_is_open(visit: Any) -> None:
    page = visit("/deployments/chat-pd/")
    asked: list[str] = []
    page.on(
        "request", lambda request: asked.append(request.url) if "blocks" in request.url else None
    )
    page.locator("#m-actions").evaluate("e => e.showPopover()")
    page.wait_for_timeout(500)
    asked.clear()
    page.wait_for_timeout(6500)
    assert asked == []
    page.keyboard.press("Escape")
    page.locator("#live-toggle").click()
    assert "Paused" in page.locator("#live-toggle").inner_text()
    page.wait_for_timeout(500)
    asked.clear()
    page.wait_for_timeout(6500)
    assert asked == []
    page.locator("#live-toggle").click()
    page.wait_for_timeout(1000)
    assert len(asked) == 1


def test_after_signing_out_the_page_stays_with_a_banner(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    page.context.clear_cookies(name="sessionid")
    page.evaluate(REFRESH)
    page.get_by_text("You are signed out.").wait_for()
    assert page.locator("#block-diagnosis").is_visible()
    assert page.url.endswith(DEPLOYMENT)


def test_a_failing_server_never_empties_the_page(visit: Any) -> None:
    page = visit(DEPLOYMENT, allow=("ERR_FAILED", "Failed to fetch"))
    page.route("**/blocks/live/**", lambda route: route.abort())
    page.evaluate(REFRESH)
    page.get_by_text("Fulcrum does not answer.").wait_for()
    assert page.locator("#block-figures .kpi").count() == 6


def test_rows_do_not_jump_under_the_pointer(visit: Any, sample: Any) -> None:
    page = visit("/fleet/")
    page.locator("#row-chat-mini").hover()
    rows = pages.fleet_rows()
    sample.pages["fleet"] = pages.fleet(rows=(rows[1], rows[0], *rows[2:]), etag="f2")
    page.evaluate(REFRESH)
    chip = page.locator("#moved")
    chip.wait_for()
    ids = page.eval_on_selector_all("tr[data-row]", "rows => rows.map(r => r.id)")
    assert ids[:2] == ["row-assist-chat-prod", "row-doc-rag-prod"]
    assert "2 rows moved" in chip.inner_text()
    chip.click()
    until(page, "document.querySelector('tr[data-row]').id === 'row-doc-rag-prod'")


def test_a_theme_switch_redraws_charts_without_a_request(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    draw_all(page)
    asked: list[str] = []
    page.on(
        "request", lambda request: asked.append(request.url) if "series" in request.url else None
    )
    line = "[data-panel=busy] .scatterlayer .trace:last-child path.js-line"
    before = page.locator(line).first.evaluate("e => getComputedStyle(e).stroke")
    page.locator("[popovertarget=m-theme]").click()
    page.get_by_role("button", name="Dark").click()
    until(page, "document.documentElement.dataset.theme === 'dark'")
    page.wait_for_timeout(400)
    after = page.locator(line).first.evaluate("e => getComputedStyle(e).stroke")
    assert (before, after) == ("rgb(34, 64, 154)", "rgb(76, 120, 240)")
    assert asked == []


def test_the_theme_of_the_system_is_there_before_the_first_paint(visit: Any) -> None:
    page = visit("/fleet/", theme="")
    page.emulate_media(color_scheme="dark")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_gaps_stay_gaps_and_charts_have_a_sentence_and_a_table(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    draw_all(page)
    assert page.evaluate(
        "document.querySelector('[data-panel=ttft] .js-plotly-plot')"
        ".data.every(line => line.connectgaps === false)"
    )
    label = page.locator("[data-panel=ttft] [data-plot]").get_attribute("aria-label")
    assert label and label.startswith("Time to first token P95: last value 1.8")
    assert "objective 1.20 s" in label
    button = page.locator("[data-panel=ttft] [data-toggle-table]")
    button.click()
    table = page.locator("[data-panel=ttft] [data-table] table")
    assert table.locator("tbody tr").count() == 181
    assert table.locator("thead th").all_inner_texts() == ["Time", "P50", "P95", "P99"]
    assert "–" in table.inner_text()
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    assert page.locator("[data-panel=ttft] [data-plot]").is_visible()


def test_charts_show_local_time(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    draw_all(page)
    first = page.evaluate(
        "document.querySelector('[data-panel=ttft] .js-plotly-plot').data[0].x[0]"
    )
    assert first == "2026-11-30 00:08:00"


def test_a_missing_series_says_so_and_the_rest_works(visit: Any) -> None:
    page = visit("/deployments/chat-pd/")
    page.route("**/api/v1/**", lambda route: route.fulfill(status=200, body="{}"))
    page.reload()
    page.locator("#charts").scroll_into_view_if_needed()
    page.get_by_text("No samples in this range.").first.wait_for()
    assert page.locator("#block-pools").is_visible()


def test_keyboard(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("g")
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.locator("#m-range").is_visible()
    page.keyboard.press("t")
    page.keyboard.press("l")
    assert "Paused" in page.locator("#live-toggle").inner_text()
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url("**/fleet/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "doc-rag-prod"
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{DEPLOYMENT}")


def test_shifting_the_range_goes_back_by_half(visit: Any) -> None:
    page = visit(f"{DEPLOYMENT}?from=2026-11-29T12:00Z&to=2026-11-29T14:00Z")
    page.keyboard.press("[")
    page.wait_for_url("**from=2026-11-29T11%3A00%3A00Z&to=2026-11-29T13%3A00%3A00Z")


def test_single_keys_can_be_off(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    page.evaluate("document.body.dataset.keys = 'off'")
    page.keyboard.press("?")
    page.keyboard.press("a")
    page.wait_for_timeout(200)
    assert not page.locator("#help").is_visible()
    assert page.url.endswith(DEPLOYMENT)


def test_from_the_page_to_an_applied_change_by_keyboard_only(
    visit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story of 03:00: two steps, no pointer."""
    proposed: list[dict[str, Any]] = []

    def propose(**given: Any) -> Any:
        proposed.append(given)
        return SimpleNamespace(number="C-0914")

    monkeypatch.setattr(acts.commands, "propose", propose)
    monkeypatch.setattr(
        acts.planning_selectors, "recommendation_by_number", lambda v, n: SimpleNamespace(pk=n)
    )
    page = visit(DEPLOYMENT)
    assert page.locator("#dg").inner_text() == "Prefill is the bottleneck"
    page.keyboard.press("a")
    page.wait_for_url("**/recommendations/R-2187/")
    assert proposed == []
    page.locator("#apply .btn.pri").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/commands/C-0914/")
    assert len(proposed) == 1
    assert page.get_by_text("Verifying: 4 min of 10 min").first.is_visible()


def test_a_figure_opens_its_query(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    page.get_by_role("button", name="Queue wait").click()
    trace = page.locator("[id^=t-ev-0]")
    assert trace.is_visible()
    assert "increase(vllm:request_queue_time_seconds_sum[5m])" in trace.inner_text()


def test_no_layout_shift_and_a_fast_first_paint(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    page.wait_for_timeout(800)
    shift, paint = page.evaluate(
        """() => new Promise(done => {
          let total = 0;
          new PerformanceObserver(list => list.getEntries().forEach(e => { total += e.value; }))
            .observe({type: 'layout-shift', buffered: true});
          setTimeout(() => done([total,
            performance.getEntriesByName('first-contentful-paint')[0].startTime]), 200);
        })"""
    )
    assert shift < 0.01
    assert paint < 1500


def test_printing_hides_buttons_and_keeps_charts_on_the_sheet(visit: Any) -> None:
    page = visit(DEPLOYMENT)
    draw_all(page)
    page.emulate_media(media="print")
    assert not page.locator(".top").is_visible()
    assert not page.locator(".act").first.is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    width = page.locator("[data-panel=ttft] .main-svg").first.bounding_box()
    assert width is not None and width["width"] == 640
