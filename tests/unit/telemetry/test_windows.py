"""Cutting readings into windows, and chains of windows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from apps.engines import loader
from apps.engines.readings import Reading
from apps.engines.window import Signal
from apps.fleet.domain.spans import SpanFacts
from apps.telemetry.domain.windows import (
    Slot,
    TargetHistory,
    chain,
    segments,
    tiles,
    window_start,
    windows_of_tick,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TOKENS = "vllm:generation_tokens_total"
RUNNING = "vllm:num_requests_running"


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def reading(tokens: float, running: float = 1) -> Reading:
    return Reading({TOKENS: {(): tokens}, RUNNING: {(): running}}, {})


def history(
    owner: str, points: dict[float, float], spans: tuple[SpanFacts, ...] = (), role: str = "decode"
) -> TargetHistory:
    readings = [(at(when), reading(tokens)) for when, tokens in points.items()]
    return TargetHistory(owner, "engine", loader.load("vllm"), readings, role, spans)


FLIP = (SpanFacts("mixed", at(-100), at(12)), SpanFacts("decode", at(12), None))


def windows(*histories: TargetHistory, start: float = 0, end: float = 20, expected=None):
    found = windows_of_tick(
        histories, start=at(start), end=at(end), expected=expected or {}, source="t"
    )
    return {window.scope: window for window in found}


def test_start_is_an_earlier_tick():
    ticks = [at(second) for second in (0, 5.1, 10, 15.2, 20)]
    assert window_start(ticks, at(20), 10, 5) == at(10)
    assert window_start(ticks, at(20), 15, 5) == at(5.1)
    assert window_start(ticks, at(20), 3600, 5) == at(0)  # warming up
    assert window_start([at(20)], at(20), 30, 5) == at(20)
    assert window_start([at(-500), at(18), at(20)], at(20), 10, 5) == at(18)  # after a gap


def test_increments_of_a_window():
    found = windows(history("a", {0: 10, 10: 20, 20: 50}), history("b", {0: 0, 10: 5, 20: 5}))
    tokens = found["decode"].values[Signal.OUTPUT_TOKENS]
    assert tokens.by_worker == {"a": 40, "b": 5}
    assert found["decode"].reported == ("a", "b")


def test_rates_after_a_silence_are_over_what_was_seen():
    """The pool was silent until 15: 40 tokens in the 5 s that were seen are 8 a second, not 2."""
    found = windows(history("a", {15: 10, 20: 50}), history("b", {15: 0, 20: 0}))["decode"]
    assert found.seconds == 5
    assert found.values[Signal.OUTPUT_TOKENS].increase == 40
    # one worker that was seen all along covers the window
    whole = windows(history("a", {15: 10, 20: 50}), history("b", {0: 0, 20: 40}))["decode"]
    assert whole.seconds == 20
    # a first reading has no rate yet, and no window of zero seconds
    assert windows(history("a", {20: 50}))["decode"].seconds == 20


def test_rates_after_a_missed_answer_are_over_what_was_counted():
    """The router did not answer at 0: what it did from -5 on is counted, over 25 s and not 20."""
    missed = windows(history("a", {-5: 0, 5: 10, 20: 50}))["decode"]
    assert (missed.values[Signal.OUTPUT_TOKENS].increase, missed.seconds) == (50, 25)
    # where another target of the scope answered, the window's own length is the better measure
    both = windows(history("a", {-5: 0, 5: 10, 20: 50}), history("b", {0: 0, 20: 40}))["decode"]
    assert both.seconds == 20


def test_one_answer_before_a_change_says_nothing_of_an_increase():
    """Without a role label of its own, the first answer in the new role is no second one of the
    old."""
    spans = (SpanFacts("mixed", at(-100), at(4)), SpanFacts("decode", at(4), None))
    moved = history("a", {0: 10, 5: 20, 20: 30}, spans)
    alive = frozenset({RUNNING})  # the metric that makes a missing counter an explicit zero
    moved = replace(moved, readings=[(t, replace(r, siblings=alive)) for t, r in moved.readings])
    found = windows(moved, history("b", {0: 0, 20: 7}, role="mixed"))
    assert found["mixed"].values[Signal.OUTPUT_TOKENS].by_worker == {"b": 7}
    assert Signal.REQUESTS_COMPLETED not in found["mixed"].values  # unknown, not 0


def test_a_role_change_cuts_the_window():
    found = windows(history("a", {0: 0, 5: 10, 10: 30, 15: 100, 20: 130}, FLIP))
    assert found["decode"].values[Signal.OUTPUT_TOKENS].by_worker == {"a": 30}
    assert "mixed" not in found  # nobody reports in it any more


def test_the_old_pool_keeps_what_was_done_in_it():
    found = windows(
        history("a", {0: 0, 5: 10, 10: 30, 15: 100, 20: 130}, FLIP),
        history("b", {0: 0, 20: 7}, role="mixed"),
    )
    assert found["mixed"].values[Signal.OUTPUT_TOKENS].by_worker == {"a": 30, "b": 7}
    assert found["mixed"].reported == ("b",)
    assert found["mixed"].values[Signal.RUNNING].by_worker == {"b": 1}


def test_a_restart_across_the_change_belongs_to_the_new_role():
    found = windows(history("a", {0: 500, 10: 530, 15: 40, 20: 60}, FLIP))
    assert found["decode"].values[Signal.OUTPUT_TOKENS].by_worker == {"a": 60}


def named(decode: float | None = None, prefill: float | None = None) -> Reading:
    """SGLang's own role label: output tokens of its decode time, input tokens of its prefill."""
    series = {"sglang:generation_tokens_total": ("decode", decode),
              "sglang:prompt_tokens_total": ("prefill", prefill)}  # fmt: skip
    return Reading(
        {
            name: {(("engine_type", role),): value}
            for name, (role, value) in series.items()
            if value is not None
        },
        {},
    )


def test_a_series_that_names_its_role_loses_nothing_at_the_change():
    """The engine shows its new role before the change is recorded at 12 s, and its old series for
    a while after it: the interval across the change counts on both sides, once."""
    spans = (SpanFacts("decode", at(-100), at(12)), SpanFacts("prefill", at(12), None))
    points = {0: named(100), 10: named(150, 0), 15: named(160, 1000), 20: named(None, 1500)}
    flipped = TargetHistory(
        "a", "engine", loader.load("sglang"),
        [(at(when), shown) for when, shown in points.items()], "prefill", spans,
    )  # fmt: skip
    other = TargetHistory(
        "b", "engine", loader.load("sglang"),
        [(at(0), named(0)), (at(15), named(7)), (at(20), named(9))], "decode",
    )  # fmt: skip
    whole = windows(flipped, other)
    assert whole["decode"].values[Signal.OUTPUT_TOKENS].by_worker == {"a": 60, "b": 9}
    assert whole["prefill"].values[Signal.INPUT_TOKENS].by_worker == {"a": 1500}
    # The same in windows that tile.
    first = windows(flipped, other, end=10)
    second = windows(flipped, other, start=10)
    assert "prefill" not in first
    assert first["decode"].values[Signal.OUTPUT_TOKENS].by_worker["a"] == 50
    assert second["decode"].values[Signal.OUTPUT_TOKENS].by_worker["a"] == 10
    assert second["prefill"].values[Signal.INPUT_TOKENS].by_worker == {"a": 1500}


def test_one_missed_answer_at_the_start_loses_nothing():
    """Windows that tile at 0: what the worker did from -5 to 5 belongs to the second one."""
    spans = (SpanFacts("decode", at(-100), None),)
    steady = history("a", {-10: 0, -5: 5, 0: 10, 5: 15, 10: 20}, spans)
    missed = history("b", {-10: 0, -5: 5, 5: 15, 10: 20}, spans)
    first = windows(steady, missed, start=-10, end=0)["decode"]
    second = windows(steady, missed, start=0, end=10)["decode"]
    assert first.values[Signal.OUTPUT_TOKENS].by_worker == {"a": 10, "b": 5}
    assert second.values[Signal.OUTPUT_TOKENS].by_worker == {"a": 10, "b": 15}
    assert second.reported == ("a", "b")


def test_a_worker_that_was_away_has_not_reported_the_window():
    """Its share of the window is unknown; one that is new has no share to miss."""
    old = (SpanFacts("decode", at(-100), None),)
    new = (SpanFacts("decode", at(9), None),)
    found = windows(
        history("a", {0: 0, 10: 5, 20: 10}, old),
        history("away", {10: 5, 20: 10}, old),
        history("new", {10: 0, 20: 10}, new),
        expected={"decode": ("a", "away", "new")},
    )["decode"]
    assert found.reported == ("a", "new")


def test_segments_of_a_change():
    cut = segments(history("a", {0: 0, 10: 1, 15: 2, 20: 3}, FLIP), at(0), at(20))
    assert [(s.role, len(s.readings), s.starts_only_first, s.is_last) for s in cut] == [
        ("mixed", 2, False, False),
        ("decode", 3, True, True),
    ]


def test_a_silent_scope_has_no_window():
    assert windows(history("a", {0: 0, 10: 5})) == {}


def test_expected_but_silent_workers_are_kept_in_sight():
    found = windows(
        history("a", {0: 0, 20: 5}),
        history("b", {0: 0, 10: 4}),
        expected={"decode": ("a", "b", "c")},
    )["decode"]
    assert (found.expected, found.reported) == (("a", "b", "c"), ("a",))
    assert found.values[Signal.RUNNING].by_worker == {"a": 1}
    assert found.values[Signal.OUTPUT_TOKENS].by_worker == {"a": 5, "b": 4}


def slots(*pairs: tuple[float, float]) -> list[Slot]:
    return [Slot(key, at(a), at(b)) for key, (a, b) in enumerate(pairs)]


def test_chain_walks_back_without_overlap():
    sliding = slots(*((second - 30, second) for second in range(30, 121, 5)))
    found = chain(sliding, end=at(118), span_s=90)
    assert [(s.start, s.end) for s in found] == [
        (at(85), at(115)), (at(55), at(85)), (at(25), at(55))
    ]  # fmt: skip


def test_chain_leaves_a_gap_where_a_tick_was_missed():
    found = chain(slots((0, 30), (5, 35), (40, 70)), end=at(70), span_s=90)
    assert [s.end for s in found] == [at(70), at(35)]


def test_chain_of_nothing():
    assert chain([], end=at(0), span_s=30) == ()
    assert chain(slots((10, 40)), end=at(30), span_s=30) == ()


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)), max_size=40),
    st.integers(0, 600),
    st.integers(1, 600),
)
def test_chains_and_tiles_never_overlap(pairs, end, span):
    found = [Slot(i, at(a), at(a + length)) for i, (a, length) in enumerate(pairs)]
    for picked in (chain(found, end=at(end), span_s=span)[::-1], tiles(found)):
        assert all(a.end <= b.start for a, b in pairwise(picked))
    assert all(slot.end <= at(end) for slot in chain(found, end=at(end), span_s=span))


def test_tiles_are_stable():
    sliding = slots(*((max(0, second - 30), second) for second in range(5, 301, 5)))
    kept = tiles(sliding)
    assert [slot.end for slot in kept] == [at(second) for second in range(30, 301, 30)]
    later = [*kept, *slots(*((second - 30, second) for second in range(305, 601, 5)))]
    assert tiles(later)[: len(kept)] == kept


def test_a_tick_without_histograms_does_not_answer_none_of_them():
    """`vllm:num_requests_running` is a sibling: a histogram not yet born counts 0, one that was
    not read is not found."""
    readings = [
        (at(when), replace(reading(when), siblings=frozenset({RUNNING}))) for when in (0, 20)
    ]
    target = TargetHistory("a", "engine", loader.load("vllm"), readings, "decode")
    options = {"start": at(0), "end": at(20), "expected": {}, "source": "t"}
    (read,) = windows_of_tick([target], **options)
    (not_read,) = windows_of_tick([target], **options, with_histograms=False)
    assert Signal.ITL in read.values
    assert Signal.ITL not in not_read.values
    assert Signal.OUTPUT_TOKENS in not_read.values


def test_targets_read_one_after_another_are_not_late():
    always = (SpanFacts("decode", at(-100), None),)
    both = [history("a", {1: 0, 20: 1}, always), history("b", {4: 0, 20: 1}, always)]
    options = {"start": at(0), "end": at(20), "expected": {}, "source": "t"}
    assert windows_of_tick(both, **options)[0].reported == ("a",)
    assert windows_of_tick(both, **options, phase_s=5)[0].reported == ("a", "b")
