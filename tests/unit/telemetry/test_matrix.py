"""Answers to range selectors: numbers, label sets that are remembered, bounds of buckets."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.telemetry.collectors import matrix
from apps.telemetry.collectors.naming import Piece, Use
from apps.telemetry.collectors.ranges import Collector, Span

ORIGIN = ("instance", "job")


def body(rows, **options) -> bytes:
    answer = {"status": "success", "data": {"resultType": "matrix", "result": rows}}
    return json.dumps(answer, **options).encode()


def series(rows, **options):
    return matrix.parse(body(rows, **options))["data"]["result"]


def test_numbers_are_read_from_their_texts_and_infinite_ones_as_well():
    plain, odd = series(
        [
            {"metric": {}, "values": [[1.5, "0.1"], [2, "1e-7"]]},
            {"metric": {}, "values": [[1, "NaN"], [2, "+Inf"], [3, "-Inf"]]},
        ]
    )
    assert plain.values == [(1.5, 0.1), (2.0, 1e-7)]
    assert odd.values is not None
    assert math.isnan(odd.values[0][1])
    assert [value for _, value in odd.values[1:]] == [math.inf, -math.inf]


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"data": {"result": 1}}', b"<html>"])
def test_what_is_no_answer_is_refused(text):
    with pytest.raises(ValueError):
        matrix.parse(text)


def test_warnings_are_kept():
    text = b'{"data": {"result": []}, "warnings": ["part of the data is missing"]}'
    assert matrix.parse(text)["warnings"] == ["part of the data is missing"]


names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda n: n != "le")


@given(st.dictionaries(names, st.text(max_size=12), max_size=5), st.sampled_from(["0.5", "+Inf"]))
@pytest.mark.parametrize("compact", [True, False])
def test_a_bound_is_cut_out_of_any_label_set(compact, labels, edge):
    whole = {"__name__": "x_bucket", **labels, "le": edge}
    options = {"separators": (",", ":")} if compact else {}
    (item,) = series([{"metric": whole, "values": []}], **options)
    start = matrix.common_start([item])
    text, found = matrix.without_bound(bytes(item.metric)[len(start) :])
    assert found == edge
    plain = matrix.identity(json.dumps(labels).encode(), "instance", ORIGIN)
    cut = matrix.identity(text, "instance", ORIGIN)
    assert (cut.labels, cut.origin, cut.instance) == (plain.labels, plain.origin, plain.instance)


def test_a_label_that_looks_like_a_bound_is_none():
    tricky = {"a": '","le":"9"', "title": '"le":"8"', "le": "0.5"}
    (item,) = series([{"metric": tricky, "values": []}], separators=(",", ":"))
    text, edge = matrix.without_bound(bytes(item.metric))
    assert edge == "0.5"
    assert dict(matrix.identity(text, "instance", ORIGIN).labels) == {
        "a": '","le":"9"', "title": '"le":"8"'
    }  # fmt: skip


@pytest.mark.parametrize("compact", [True, False])
def test_buckets_of_one_series_come_together(compact):
    options = {"separators": (",", ":")} if compact else {}
    rows = [
        {
            "metric": {"__name__": "x_bucket", "instance": "i0", "le": edge, "rank": "0"},
            "values": [[0, "0"], [15, count]],
        }
        for edge, count in (("0.5", "3"), ("+Inf", "4"))
    ]
    found = Collector({}, {"i0:80": [("k", {})]}, "instance", ORIGIN, 15)
    found.add(series(rows, **options), (Use("x", Piece.BUCKET, 0),))
    (_, first), (_, last) = found.readings("k", Span(0, 15, 15, 60))
    state = last.buckets["x"][(("rank", "0"),)]
    assert (state.bounds, state.cumulative) == ((0.5,), (3.0, 4.0))
    assert first.buckets["x"][(("rank", "0"),)].count == 0
