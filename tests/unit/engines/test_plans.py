"""Rows and filters that are worked out once per role; a copy of a profile needs its own."""

from __future__ import annotations

import pytest

from apps.engines import loader
from apps.engines.deltas import Buckets
from apps.engines.evaluate import evaluate
from apps.engines.plans import plan_of
from apps.engines.readings import Reading
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Kind, Signal

NAME = "sglang:generation_tokens_total"


def reading(value: float, **labels: str) -> Reading:
    return Reading({NAME: {tuple(sorted(labels.items())): value}}, {})


def tokens(readings, **options):
    profile = loader.load("sglang")
    reader = ScrapedReader(profile, "decode", readings, **options)
    part = evaluate(profile, "decode", reader).get(Signal.OUTPUT_TOKENS)
    return None if part is None else dict(part.parts or {})


def test_what_came_after_a_role_counts_only_where_the_series_names_the_role():
    assert tokens([reading(1)], after=reading(5)) is None
    own = {"engine_type": "decode"}
    assert tokens([reading(1, **own)], after=reading(5, **own)) == {"": 4.0}


def test_a_base_of_another_role_counts_only_a_restart():
    assert tokens([reading(1), reading(5)], starts_only_first=True) == {"": 0.0}
    assert tokens([reading(5), reading(1)], starts_only_first=True) == {"": 1.0}


@pytest.mark.parametrize(("base", "last", "grown"), [(1, 5, 4.0), (5, 1, 1.0)])
def test_two_readings_are_differenced_with_restarts(base, last, grown):
    assert tokens([reading(base), reading(last)]) == {"": grown}


def test_births_count_whole_and_what_vanished_adds_nothing():
    born = Reading({NAME: {(("a", "1"),): 3.0}}, {})
    assert tokens([Reading({}, {}), born]) == {"": 3.0}
    assert tokens([born, Reading({}, {})]) == {"": 0.0}


def test_a_changed_copy_of_a_profile_has_its_own_plan():
    profile = loader.load("sglang")
    assert Signal.OUTPUT_TOKENS in plan_of(profile, "decode").rows
    changed = profile.model_copy(update={"signals": {}})
    assert plan_of(changed, "decode").rows == {}
    assert plan_of(profile, "decode") is plan_of(profile, "decode")


def test_histograms_are_left_out_where_they_are_not_due():
    profile = loader.load("sglang")
    name = "sglang:queue_time_seconds"
    readings = [Reading({}, {name: {(): Buckets((1.0,), (n, n), n)}}) for n in (0.0, 4.0)]
    reader = ScrapedReader(profile, "decode", readings)
    assert evaluate(profile, "decode", reader)[Signal.QUEUE_TIME].kind is Kind.HISTOGRAM
    assert evaluate(profile, "decode", reader, with_histograms=False) == {}
