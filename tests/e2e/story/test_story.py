"""The story of the product, on the live demo fleet, in a browser, unattended:
pager link, cause, review, apply, verified, roll back.

Recovery is measured where users' requests pass: from the load generator's own record.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
import requests
from playwright.sync_api import TimeoutError as PageTimeout

from apps.commands.domain.states import ENDED
from tests.support.browser import Window, browser, window
from tests.support.product import (
    Fleet,
    NotInTime,
    Product,
    fleet,
    once_more_after_a_stall,
    product,
    quantile,
    stalls_explain,
    wait_until,
)

pytestmark = [pytest.mark.e2e]

TTFT_OBJECTIVE_S = 2.5
#: What a stall may explain: waits that ran out, and figures and proofs over a time that had one.
LATE = (NotInTime, PageTimeout, requests.Timeout)


def client_ttft_p95(running: Fleet, last_s: float) -> float | None:
    """P95 of the requests that got their first token in the last seconds, as clients saw it."""
    truth = running.truth(time.time() - last_s - 60)
    found = [
        r["ttft"]
        for r in truth["requests"]
        if r["deployment"] == "chat-pd"
        and r["ttft"] is not None
        and r["start"] + r["ttft"] > truth["now"] - last_s
    ]
    return quantile(found, 0.95) if len(found) >= 50 else None


def run_story(seed: int) -> dict[str, Any]:
    times: dict[str, Any] = {"seed": seed}
    with fleet("--shift-after", "45", seed=seed) as running, product(running) as app:
        times["up_s"] = round(app.started_in_s, 1)
        with browser() as chromium:
            one = window(chromium, app.url)
            one.sign_in(app.details["user"], app.details["password"])
            try:
                with stalls_explain(running, late=LATE):
                    _watch(one, app, running, times)
            finally:
                _hold(one, running)
    return times


def _hold(one: Window, running: Fleet) -> None:
    """What no stall excuses: a request was lost, a page is in trouble."""
    failed = [r for r in running.truth()["requests"] if not r["ok"]]
    assert failed == [], f"{len(failed)} requests failed"
    assert one.problems == []


def _proved(holds: bool, otherwise: object) -> None:
    """What the product measured of live traffic, and so what a stall may spoil."""
    if not holds:
        raise NotInTime(otherwise)


def _watch(one: Window, app: Product, running: Fleet, times: dict[str, Any]) -> None:
    page = one.page
    began = time.monotonic()

    # 1. The pager's link: the cause and its proof, without scrolling.
    wait_until(
        lambda: app.get("/api/v1/deployments/chat-pd/diagnosis/")["cause"] == "prefill_saturated",
        120,
        "the diagnosis",
        1.0,
    )
    times["diagnosed_s"] = round(time.monotonic() - began, 1)
    recommendation = wait_until(app.open_recommendation, 60, "an applicable recommendation", 1.0)
    times["recommended_s"] = round(time.monotonic() - began, 1)
    one.open("/deployments/chat-pd/?at=now")
    page.get_by_text("Prefill is the bottleneck").first.wait_for()
    for block in ("#block-diagnosis", "#block-path", "#block-figures", "#block-recommendation"):
        assert one.is_in_first_screen(block), f"{block} needs scrolling"
    assert page.get_by_text("More decode workers will not help").first.is_visible()
    assert recommendation["targets"] == {"prefill": 3, "decode": 3}

    # 2. Review: diff, checks; one press applies.
    page.locator("#block-recommendation a.btn.pri").click()
    page.wait_for_url("**/recommendations/**")
    assert page.locator(".diff .del").count() == 2
    assert page.locator(".diff .add").count() == 2
    apply = page.locator("#apply button[type=submit]")
    assert apply.is_enabled(), page.locator("#why-not").inner_text()
    apply.click()
    page.wait_for_url("**/commands/C-*/")
    number = page.url.rstrip("/").rsplit("/", 1)[1]
    applied = time.monotonic()

    # 3. Carried out on the real router, and proved.
    command = _end_of(app, number, 180)
    times["command_s"] = round(time.monotonic() - applied, 1)
    _proved(
        command["state"] == "SUCCEEDED", (command["state"], command["error"], app.log()[-1500:])
    )
    roles = sorted(running.router_workers().values())
    assert roles == ["decode"] * 3 + ["prefill"] * 3
    assert {s["kind"] for s in command["steps"]} >= {"remove_worker", "switch_role", "add_worker"}
    wait_until(
        lambda: (client_ttft_p95(running, 30) or 99) <= TTFT_OBJECTIVE_S,
        120,
        "clients' TTFT P95 inside its objective",
        2.0,
    )
    times["recovered_s"] = round(time.monotonic() - applied, 1)
    _hold(one, running)

    # 4. The command's page: predicted beside measured.
    one.open(f"/commands/{number}/")
    page.get_by_text("Predicted and measured").first.wait_for()
    rows = {row["code"]: row for row in command["compared"]}
    before, measured = rows["ttft_p95"]["now"], rows["ttft_p95"]["measured"]
    assert before["value"] > TTFT_OBJECTIVE_S
    # The product's own figure is one 30 s window at the end of the soak: inside the objective, or
    # halved at least where a burst in it stands in the bucket above. That users are served inside
    # the objective is asked of their own record.
    enough = max(TTFT_OBJECTIVE_S, before["value"] / 2)
    _proved(measured["value"] <= enough < before["value"], (before, measured))
    _proved(rows["tpot_p95"]["measured"]["value"] <= 0.025, rows["tpot_p95"])
    times["predicted_ttft_s"] = round(rows["ttft_p95"]["after"]["value"], 2)
    times["measured_ttft_s"] = round(rows["ttft_p95"]["measured"]["value"], 2)
    times["inside"] = {code: row["inside_range"] for code, row in rows.items()}

    # 5. One press rolls back.
    page.locator("form[action$='/rollback/'] button").click()
    page.wait_for_url(lambda url: "/commands/C-" in url and not url.endswith(f"/{number}/"))
    back = page.url.rstrip("/").rsplit("/", 1)[1]
    ended = _end_of(app, back, 180)
    _proved(ended["state"] == "SUCCEEDED", (ended["state"], ended["error"]))
    assert sorted(running.router_workers().values()) == ["decode"] * 4 + ["prefill"] * 2
    assert app.get(f"/api/v1/commands/{number}/")["state"] == "ROLLED_BACK"


def _end_of(app: Product, number: str, timeout_s: float) -> Any:
    def ended() -> Any:
        command = app.get(f"/api/v1/commands/{number}/")
        return command if command["state"] in ENDED else None

    return wait_until(ended, timeout_s, f"the end of {number}", 1.0)


def test_pager_cause_review_apply_verified_roll_back(record_property: Any) -> None:
    times = once_more_after_a_stall(partial(run_story, 1))
    record_property("times", times)
    print(times)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3, 4, 5, 6])
def test_the_story_with_other_seeds(seed: int) -> None:
    print(once_more_after_a_stall(partial(run_story, seed)))
