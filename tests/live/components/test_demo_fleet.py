"""The demo fleet under its own load, read by both collectors: two real routers, twelve engines of
both kinds, and the load generator's truth."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from apps.engines.window import Signal
from tests.support.components.observed import (
    KINDS,
    Reporter,
    Subject,
    Windows,
    agrees,
    observer,
    total,
)
from tests.support.components.process import until
from tests.support.product import Fleet, fleet

pytestmark = [pytest.mark.live, pytest.mark.django_db]

SLUGS = ("chat-pd", "search-pd")
LOAD_S = 6.0


@dataclass(frozen=True)
class Seen:
    truth: Mapping[str, Any]
    windows: Windows
    workers: Mapping[str, str]


@pytest.fixture(scope="module")
def seen(module_db, tmp_path_factory) -> Mapping[str, Seen]:
    with fleet("--scenario", "steady", "--no-load", seed=11) as running, module_db():
        deployments = running.state["deployments"]
        subjects = [_subject(deployment) for deployment in deployments]
        with observer(subjects, tmp_path_factory.mktemp("prometheus")) as watch:
            watch.begin()
            running.post("/start_load")
            time.sleep(LOAD_S)
            running.post("/stop_load")
            until(lambda: _is_quiet(running), 60, "the last answer")
            windows = watch.end()
            truth = running.truth()["totals"]
            return {
                slug: Seen(
                    truth[slug],
                    windows[slug],
                    {w["url"]: w["role"] for w in running.deployment(slug)["workers"]},
                )
                for slug in SLUGS
            }


def _subject(deployment: Mapping[str, Any]) -> Subject:
    return Subject(
        deployment["slug"],
        deployment["engine"],
        tuple(
            Reporter(worker["name"], worker["role"], worker["url"], worker["metrics_url"])
            for worker in deployment["workers"]
        ),
        {"metrics_url": deployment["router"]["metrics_url"], "metrics_profile": "smg"},
    )


def _is_quiet(running: Fleet) -> bool:
    totals = running.truth(time.time())["totals"]
    return all(item["in_flight"] == 0 for item in totals.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slug", SLUGS)
def test_counts_are_those_of_the_load(seen, slug, kind):
    truth, windows = seen[slug].truth, seen[slug].windows[kind]
    assert truth["failed"] == 0 and truth["ok"] == truth["sent"] > 10
    for scope, signal, expected in (
        ("router", Signal.REQUESTS_ARRIVED, truth["sent"]),
        ("router", Signal.REQUESTS_COMPLETED, truth["ok"]),
        ("router", Signal.REQUESTS_FAILED, 0),
        ("router", Signal.TTFT, truth["ok"]),
        ("prefill", Signal.INPUT_TOKENS, truth["tokens_in"]),
        ("decode", Signal.OUTPUT_TOKENS, truth["tokens_out"]),
    ):
        found = total(windows[scope], signal)
        assert agrees(kind, windows[scope], signal, expected), (scope, signal, found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slug", SLUGS)
def test_every_engine_reports_in_its_role(seen, slug, kind):
    for role in ("prefill", "decode"):
        wanted = {url for url, has in seen[slug].workers.items() if has == role}
        assert set(seen[slug].windows[kind][role].reported) == wanted
