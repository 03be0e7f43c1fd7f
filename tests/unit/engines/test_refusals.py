"""Figures that cannot be: left out, with the reason, and the next row tried."""

from __future__ import annotations

import pytest

from apps.engines import loader
from apps.engines.evaluate import Defect, evaluate
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Signal

VLLM = loader.load("vllm")


def found(text: str, profile=VLLM, role: str = "decode"):
    defects: list[Defect] = []
    reader = ScrapedReader(profile, role, [read(text, profile)])
    return evaluate(profile, role, reader, defects), defects


@pytest.mark.parametrize(("value", "kept"), [(0, True), (0.5, True), (1.0, True), (1.04, True),
                                             (1.06, False), (87, False), (-1, False)])  # fmt: skip
def test_a_ratio_on_another_scale_is_refused(value, kept):
    signals, defects = found(f"vllm:kv_cache_usage_perc {value}")
    assert (Signal.KV_USED in signals) is kept
    assert bool(defects) is not kept
    if not kept:
        assert defects[0].signal is Signal.KV_USED
        assert "vllm:kv_cache_usage_perc" in defects[0].names
        assert "scale 0.01" in defects[0].reason


def test_a_usable_row_below_a_refused_one_answers():
    component = loader.load("dynamo_component")
    text = "vllm:kv_cache_usage_perc 61\ndynamo_component_gpu_cache_usage_percent 0.61"
    signals, defects = found(text, component)
    assert signals[Signal.KV_USED].parts == {"": 0.61}
    assert len(defects) == 1


def test_one_workers_broken_figure_does_not_take_the_others():
    """Prometheus answers come per worker of a router; the check is per part."""
    smg = loader.load("smg")

    class Broken(ScrapedReader):
        def gauge(self, ref, row):
            return {"http://a": 1.0, "http://b": float("nan"), "http://c": 1e308}

    defects: list[Defect] = []
    reader = Broken(smg, "router", [read("smg_worker_health 1", smg)])
    signals = evaluate(smg, "router", reader, defects)
    assert signals[Signal.WORKER_HEALTH].parts == {"http://a": 1.0}
    assert {d.signal for d in defects} >= {Signal.WORKER_HEALTH}


def test_a_caller_that_wants_no_defects_gets_the_same_signals():
    reading = read("vllm:kv_cache_usage_perc 87\nvllm:num_requests_running 3", VLLM)
    signals = evaluate(VLLM, "decode", ScrapedReader(VLLM, "decode", [reading]))
    assert set(signals) == {Signal.RUNNING}
