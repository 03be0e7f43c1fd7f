"""Workload profiles over REST: histograms and means are told apart, hours are the site's."""

from __future__ import annotations

from .lab import SLUG, Lab, furnish


def test_a_profile_as_it_is_read(lab: Lab) -> None:
    furnish(lab)
    answer = lab.call("viewer", "GET", f"/api/v1/workloads/?deployment={SLUG}")
    (row,) = answer.json()["results"]
    assert (row["deployment"], row["reason"], row["span_to"]) == (SLUG, "first", None)
    lengths = row["lengths"]
    assert lengths["input"]["method"] == "histogram"
    assert lengths["input"]["counts"] == [60, 50, 10]
    assert lengths["input"]["p50"] == 500
    assert lengths["input"]["p95"] is None  # above the last bound: not a number that was measured
    assert lengths["output"] == {
        "method": "mean_only", "requests": 120, "mean": 200, "p50": None, "p95": None,
        "bounds": [], "counts": [],
    }  # fmt: skip
    assert row["cached_share"] == 0.25
    assert row["hours"] == [{"hour": 12, "seconds": 60, "arrivals_per_s": 2, "concurrency": 10}]
    assert row["model_share"] == 1
    detail = lab.call("viewer", "GET", f"/api/v1/workloads/{row['id']}/")
    assert detail.json()["lengths"] == lengths


def test_a_stranger_to_the_deployment_sees_no_profile(lab: Lab) -> None:
    furnish(lab)
    assert lab.call("elsewhere", "GET", "/api/v1/workloads/").json()["results"] == []
    assert lab.call("viewer", "GET", "/api/v1/workloads/?reason=nonsense").status_code == 400
