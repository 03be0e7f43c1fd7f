"""The sentence of what a tick read and did not use."""

from __future__ import annotations

from apps.engines.evaluate import Defect
from apps.engines.window import Signal
from apps.telemetry.domain.refused import sentence

KV = Defect(Signal.KV_USED, "vllm:kv_cache_usage_perc", "87 is no ratio between 0 and 1")


def test_nothing_refused_is_nothing_to_say() -> None:
    assert sentence((), ()) == ""
    assert sentence(({}, {}), ()) == ""


def test_one_figure_of_many_workers_is_one_sentence_with_its_number() -> None:
    assert sentence((), [KV] * 40) == (
        "vllm:kv_cache_usage_perc was not used (40 times): 87 is no ratio between 0 and 1"
    )


def test_many_figures_are_counted_and_never_a_list_without_end() -> None:
    many = [Defect(Signal.RUNNING, f"gauge_{number}", "no number") for number in range(50)]
    text = sentence((), many)
    assert "gauge_2" in text and "gauge_3" not in text
    assert text.endswith("47 other figures were not used")


def test_lines_of_all_targets_are_added_up_after_the_figures() -> None:
    text = sentence(({"malformed": 2, "broken": 1}, {"malformed": 3}), [KV])
    assert text.startswith("vllm:kv_cache_usage_perc")
    assert "lines that could not be read: 5" in text
    assert "histograms that lacked a bucket or their sum and were not read: 1" in text
