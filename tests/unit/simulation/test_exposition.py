"""The text the engines export is valid Prometheus text."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from apps.simulation.demo.exposition import Registry, render


def parsed(*registries: Registry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(render(registries))
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in families
        for s in family.samples
    }


def test_values_and_escaped_labels_survive_a_real_parser() -> None:
    registry = Registry()
    nasty = 'a"b\\c\nd'
    registry.counter("x_total", "Help.", {"l": nasty}).inc(3)
    registry.gauge("g", "Help.", {"l": "1"}, read=lambda: math.nan)
    found = parsed(registry)
    assert found["x_total", (("l", nasty),)] == 3
    assert math.isnan(found["g", (("l", "1"),)])


def test_histogram_is_cumulative_and_bounds_are_inclusive() -> None:
    registry = Registry()
    histogram = registry.histogram("h", "Help.", {}, (1, 2.5))
    histogram.observe(1.0)
    histogram.observe(2.0, 3)
    histogram.observe(9.0)
    found = parsed(registry)
    assert found["h_bucket", (("le", "1.0"),)] == 1
    assert found["h_bucket", (("le", "2.5"),)] == 4
    assert found["h_bucket", (("le", "+Inf"),)] == found["h_count", ()] == 5
    assert found["h_sum", ()] == 16
    assert histogram.count == 5


def test_a_family_of_two_registries_is_declared_once() -> None:
    old, new = Registry(), Registry()
    old.counter("x_total", "Help.", {"role": "a"}).inc(5)
    new.counter("x_total", "Help.", {"role": "b"}).inc(1)
    text = render([old, new])
    assert text.count("# TYPE x_total counter") == 1
    assert parsed(old, new) == {
        ("x_total", (("role", "a"),)): 5,
        ("x_total", (("role", "b"),)): 1,
    }


def test_created_gauges_only_where_the_client_writes_them() -> None:
    plain, dated = Registry(), Registry(created=1796011147.5)
    for registry in (plain, dated):
        registry.counter("x_total", "Help.", {"l": "1"})
        registry.histogram("h", "Help.", {"l": "1"}, (1,))
        registry.histogram("steps_total", "Help.", {}, (1,))
    assert "_created" not in render([plain])
    text = render([dated])
    assert 'x_created{l="1"} 1796011147.5' in text
    assert 'h_created{l="1"} 1796011147.5' in text
    assert "# TYPE x_created gauge" in text
    assert "steps_total_created{} " in text  # only a counter loses its suffix
