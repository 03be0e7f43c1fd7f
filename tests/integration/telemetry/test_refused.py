"""Figures that cannot be are left out, and their source says so."""

from __future__ import annotations

import pytest

from apps.engines.window import Signal

from .test_scraping import stored

pytestmark = pytest.mark.django_db


def test_what_was_read_and_not_used_is_said_by_the_source(metric_fleet):
    """M9 and M22 on real servers: the tick works, its source says what it did not believe, and
    stops saying it when the exporter is right again."""
    metric_fleet.collect()
    assert metric_fleet.source().last_error == ""
    metric_fleet.engine("d0").gauges(usage=61.0)
    metric_fleet.engine("d1").gauges(running=float("inf"))
    metric_fleet.collect()
    source = metric_fleet.source()
    assert source.state == "ok"
    assert source.last_error.startswith("sglang:token_usage was not used (1 time): 61 is no ratio")
    decode = stored(metric_fleet, "decode")
    assert set(decode.values[Signal.KV_USED].by_worker) == {metric_fleet.url("d1")}
    assert metric_fleet.url("d1") not in decode.values[Signal.RUNNING].by_worker
    metric_fleet.engine("d0").gauges()
    metric_fleet.collect()
    assert metric_fleet.source().last_error == (
        "values that were infinite or too large and not read: 1"
    )
    metric_fleet.engine("d1").gauges()
    metric_fleet.collect()
    assert metric_fleet.source().last_error == ""
