"""Coverage over REST: signals with what a gap costs, the report of a deployment, its scope."""

from __future__ import annotations

from apps.fleet.models import Deployment
from apps.telemetry import services as telemetry

from .lab import NOW, SLUG, Lab

#: Fields that callers had before the report came.
KEPT = {"deployment", "scope", "profile", "signal", "state", "name", "reason"}


def targets(lab: Lab) -> None:
    """A source and its targets, of which nothing was read yet."""
    deployment = Deployment.objects.get(pk=lab.deployment.pk)
    telemetry.create_source(
        actor=lab.viewer("admin"), now=NOW, cluster=lab.cluster, deployment=deployment,
        kind="scrape",
    )  # fmt: skip
    telemetry.sync_targets(deployment)


def test_a_missing_signal_says_its_effect_and_its_fix(lab: Lab) -> None:
    targets(lab)
    answer = lab.call("viewer", "GET", f"/api/v1/coverage/?deployment={SLUG}")
    assert answer.status_code == 200
    rows = {(row["scope"], row["signal"]): row for row in answer.json()["results"]}
    tpot = rows["decode", "tpot"]
    assert set(tpot) == KEPT | {"level", "effect", "fix", "fix_text"}
    assert (tpot["state"], tpot["level"]) == ("missing", 0)
    assert (tpot["effect"], tpot["fix"]) == ("tpot.missing", "scrape")
    assert tpot["fix_text"].startswith("--enable-metrics")
    assert rows["decode", "ttft"]["deployment"] == SLUG


def test_the_report_of_a_deployment(lab: Lab) -> None:
    targets(lab)
    answer = lab.call("viewer", "GET", f"/api/v1/deployments/{SLUG}/coverage/")
    assert answer.status_code == 200
    report = answer.json()
    assert (report["slug"], report["level"], report["levels"]) == (SLUG, 0, 4)
    lines = {line["code"]: line for line in report["lines"]}
    assert lines["roles"]["found"] == "found"
    assert lines["tpot"]["effect"]["code"] == "effect_missing.tpot"
    assert lines["tpot"]["fix"]["code"] == "fix.scrape"
    assert lines["devices"]["level"] == 3
    assert "DCGM_FI_PROF_DRAM_ACTIVE" in lines["devices"]["fix_text"]


def test_a_stranger_sees_no_coverage(lab: Lab) -> None:
    targets(lab)
    listed = lab.call("elsewhere", "GET", "/api/v1/coverage/")
    assert listed.status_code == 200 and listed.json()["results"] == []
    one = lab.call("elsewhere", "GET", f"/api/v1/deployments/{SLUG}/coverage/")
    assert one.status_code == 404
    assert lab.call("anonymous", "GET", f"/api/v1/deployments/{SLUG}/coverage/").status_code == 401


def test_the_summary_shows_the_level(lab: Lab) -> None:
    answer = lab.call("viewer", "GET", f"/api/v1/deployments/{SLUG}/summary/")
    assert answer.json()["coverage_level"] == 0


def test_a_workers_role_comes_with_its_source(lab: Lab) -> None:
    answer = lab.call("viewer", "GET", f"/api/v1/workers/?deployment={SLUG}")
    assert {row["role_source"] for row in answer.json()["results"]} == {"declared"}
