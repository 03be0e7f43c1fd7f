"""Every list: cursor pages in a stable order, filters, sort, and queries that do not grow."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.api.urls import ENDPOINTS
from apps.api.v1 import deployments, planning
from apps.api.v1.base import Constant
from apps.commands.models import Approval, Command, KillSwitch
from apps.fleet import services as fleet
from apps.fleet.models import Accelerator, Environment, Mode, ModelArchitecture, Worker
from apps.planning.models import RecommendationState
from apps.slo.domain.objective import ObjectiveSignal
from apps.telemetry.models import SourceKind, SourceState
from tests.support import builders

from .lab import ELSEWHERE, NOW, SLUG, Lab, figure, furnish, problem

URL = "/api/v1/commands/"


def many_commands(lab: Lab, count: int) -> None:
    """Finished commands with predictions, approvals, a recommendation and rollbacks of others."""
    first = Command.objects.first() or lab.propose()
    advice = lab.recommend(state="applied")
    for serial in range(100, 100 + count):
        made = Command.objects.create(
            serial=serial,
            number=f"C-{serial}",
            deployment=lab.deployment if serial % 2 else lab.elsewhere,
            kind="rollback" if serial % 3 == 0 else "scale",
            state="ROLLED_BACK" if serial % 3 else "SUCCEEDED",
            targets={"prefill": 3},
            before={"prefill": 2},
            plan_hash="f",
            expected_revision=1,
            requested_at=NOW + timedelta(seconds=serial),
            started_at=NOW,
            predicted={"ttft_p95": figure(0.8, 0.6, 1.0)},
            measured={"ttft_p95": figure(0.9)},
            recommendation_id=advice.pk,
            recommendation_number=advice.number,
            rollback_of=first if serial % 3 == 0 else None,
        )
        Approval.objects.create(
            command=made,
            user=lab.users["approver"],
            user_name="bob",
            decision="approved",
            at=NOW,
            plan_hash="f",
            via="console",
        )


def queries(lab: Lab, path: str) -> int:
    lab.call("operator", "GET", "/api/v1/teams/")  # a token notes its use once a minute
    with CaptureQueriesContext(connection) as seen:
        answer = lab.call("operator", "GET", path)
    assert answer.status_code == 200
    assert answer.json()["results"], path
    return len(seen)


def test_ten_commands_cost_the_queries_of_one(lab: Lab) -> None:
    furnish(lab)
    many_commands(lab, 1)
    one = queries(lab, f"{URL}?deployment={ELSEWHERE}")
    many_commands_more = [
        Command(
            serial=200 + index,
            number=f"C-{200 + index}",
            deployment=lab.elsewhere,
            kind="scale",
            state="ROLLED_BACK",
            targets={"prefill": 3},
            before={"prefill": 2},
            plan_hash="f",
            expected_revision=1,
            requested_at=NOW,
            predicted={"ttft_p95": figure(0.8, 0.6, 1.0)},
            recommendation_id=lab.recommend(state="expired").pk,
            rollback_of=Command.objects.get(number="C-1") if index % 2 else None,
        )
        for index in range(9)
    ]
    Command.objects.bulk_create(many_commands_more)
    page = lab.call("operator", "GET", f"{URL}?deployment={ELSEWHERE}").json()
    assert len(page["results"]) == 10
    assert queries(lab, f"{URL}?deployment={ELSEWHERE}") == one
    assert one <= 12


def more_nodes(lab: Lab) -> None:
    for index in range(9):
        fleet.declare_node(
            actor=builders.SYSTEM,
            now=NOW,
            cluster=lab.cluster,
            name=f"extra-{index}",
            accelerator="h200-sxm",
            devices=2,
        )


def more_workers(lab: Lab) -> None:
    for index in range(20):
        fleet.declare_worker(
            now=NOW,
            deployment=lab.deployment,
            name=f"m-{index}",
            url=f"http://10.0.0.{index + 1}:8000",
            role="decode",
            metrics_url="",
            bootstrap_port=None,
        )


def more_advice(lab: Lab) -> None:
    for _ in range(9):
        lab.recommend(state="expired")


def more_accelerators(lab: Lab) -> None:
    for index in range(9):
        Accelerator.objects.create(slug=f"a-{index}", vendor="v", name="n")
        ModelArchitecture.objects.create(slug=f"m-{index}", name="n", hf_id="h")


def more_deployments(lab: Lab) -> None:
    for index in range(3):
        builders.deployment(lab.cluster, f"more-{index}", port=23_000 + 100 * index)
    for deployment in lab.cluster.deployments.all():
        KillSwitch.objects.get_or_create(
            scope_kind="deployment", scope_id=deployment.pk, defaults={"at": NOW, "by_name": "bob"}
        )


@pytest.mark.parametrize(
    ("endpoints", "more"),
    [
        (("nodes", "devices", "audit-events"), more_nodes),
        (("workers",), more_workers),
        (("recommendations",), more_advice),
        (("accelerators", "models"), more_accelerators),
        (("deployments", "pools", "clusters", "kill-switch"), more_deployments),
    ],
)
def test_queries_do_not_grow_with_rows(
    lab: Lab, endpoints: tuple[str, ...], more: Callable[[Lab], None]
) -> None:
    furnish(lab)
    before = {name: queries(lab, f"/api/v1/{name}/") for name in endpoints}
    rows = {name: len(lab.call("operator", "GET", f"/api/v1/{name}/").json()["results"])
            for name in endpoints}  # fmt: skip
    more(lab)
    for name in endpoints:
        page = lab.call("operator", "GET", f"/api/v1/{name}/").json()["results"]
        assert len(page) > rows[name] or name == "clusters", name
        assert queries(lab, f"/api/v1/{name}/") == before[name], name


# --- pages


def walk(lab: Lab, path: str) -> list[dict[str, Any]]:
    """All rows of a list by following `next`."""
    rows: list[dict[str, Any]] = []
    following: str | None = path
    for _ in range(60):
        page = lab.call("operator", "GET", following or "").json()
        assert set(page) == {"results", "next", "previous"}
        rows += page["results"]
        following = page["next"]
        if following is None:
            return rows
        following = following.removeprefix("http://testserver")
    raise AssertionError("the pages do not end")


def test_every_list_has_cursor_pages(lab: Lab) -> None:
    furnish(lab)
    lab.propose()
    for name, view in ENDPOINTS.items():
        page = lab.call("operator", "GET", f"/api/v1/{name}/").json()
        assert set(page) == {"results", "next", "previous"}
        if not issubclass(view, Constant):
            whole = walk(lab, f"/api/v1/{name}/?page_size=200")
            assert walk(lab, f"/api/v1/{name}/?page_size=2") == whole, name
            assert walk(lab, f"/api/v1/{name}/") == whole, "the order is stable"


def test_pages_go_forward_and_back_without_loss(lab: Lab) -> None:
    many_commands(lab, 7)
    numbers = [row["number"] for row in walk(lab, f"{URL}?page_size=3")]
    assert numbers == [f"C-{serial}" for serial in range(106, 99, -1)] + ["C-1"]
    second = lab.call("operator", "GET", f"{URL}?page_size=3").json()["next"]
    page = lab.call("operator", "GET", second.removeprefix("http://testserver")).json()
    back = lab.call("operator", "GET", page["previous"].removeprefix("http://testserver")).json()
    assert [row["number"] for row in back["results"]] == numbers[:3]


def test_rows_that_share_a_name_all_come_once(lab: Lab) -> None:
    Worker.objects.update(name="same")
    seen = [row["id"] for row in walk(lab, "/api/v1/workers/?page_size=2")]
    assert sorted(seen) == sorted(str(pk) for pk in Worker.objects.values_list("pk", flat=True))


CURSORS = (
    "x",
    "%%%",
    "cD0x",
    "é",
    b64encode(b"p=\x00").decode(),
    b64encode(b"o=" + b"9" * 30).decode(),
    b64encode(b"r=x").decode(),
    b64encode(b"p=2026-99-99").decode(),
)


def test_a_made_up_cursor_is_no_server_error(lab: Lab) -> None:
    for name in ("commands", "pools", "tokens", "nodes"):
        for cursor in CURSORS:
            answer = lab.call("operator", "GET", f"/api/v1/{name}/?cursor={quote(cursor)}")
            assert answer.status_code in (200, 404), (name, cursor)
            if answer.status_code == 404:
                problem(answer, 404, "not_found")


def test_page_size_is_bounded(lab: Lab) -> None:
    many_commands(lab, 4)
    for size, rows in (("2", 2), ("0", 5), ("-3", 5), ("abc", 5), ("9" * 30, 5)):
        page = lab.call("operator", "GET", f"{URL}?page_size={size}").json()
        assert len(page["results"]) == rows


# --- filters and order


def test_recommendations_by_deployment_and_state(lab: Lab) -> None:
    first = lab.recommend(state="expired")
    second = lab.recommend()
    third = lab.recommend(deployment=lab.elsewhere)

    def numbers(query: str) -> list[str]:
        page = lab.call("operator", "GET", f"/api/v1/recommendations/?{query}").json()
        return [row["number"] for row in page["results"]]

    assert numbers(f"deployment={SLUG}&state=open") == [second.number]
    assert numbers(f"deployment={SLUG}") == [second.number, first.number]
    assert numbers("state=open") == [third.number, second.number]
    assert numbers("deployment=no-such") == []
    assert numbers("sort=created_at&state=open") in (
        [second.number, third.number],
        [third.number, second.number],
    )
    assert numbers("deployment=&state=") == [third.number, second.number, first.number]


WRONG = (
    ("recommendations/?state=OPEN", "invalid"),
    ("commands/?state=proposed", "invalid"),
    ("commands/?state=PROPOSED&state=FAILED", "invalid"),
    ("commands/?deploymnt=chat-pd", "unknown_parameter"),
    ("commands/?deployment__slug=chat-pd", "unknown_parameter"),
    ("commands/?sort=plan_hash", "invalid"),
    ("commands/?deployment=a%00b", "invalid"),
    ("clusters/?sort=--slug", "invalid"),
    ("profiles/?name=x", "unknown_parameter"),
    ("deployments/?mode=Auto", "invalid"),
    ("deployments/chat-pd/series/?panels=ttft,cost", "invalid"),
    ("deployments/chat-pd/series/?from=yesterday", "invalid"),
    ("deployments/chat-pd/series/?from=-%C2%B2h", "invalid"),
    ("deployments/chat-pd/series/?from=2026-11-30T01:00", "invalid"),
    ("deployments/chat-pd/series/?from=-1h&to=-2h", "invalid"),
    ("deployments/chat-pd/series/?from=-91d", "invalid"),
    ("deployments/chat-pd/series/?from=-99999999999d", "invalid"),
    ("deployments/chat-pd/series/?to=9999-12-31T23:59:59-14:00", "invalid"),
    ("deployments/chat-pd/series/?from=0001-01-01T00:00:00%2B14:00", "invalid"),
    ("deployments/chat-pd/series/?step=5", "unknown_parameter"),
)


def test_a_wrong_parameter_is_named(lab: Lab) -> None:
    for path, code in WRONG:
        problem(lab.call("operator", "GET", f"/api/v1/{path}"), 400, code)


def test_series_take_relative_and_absolute_times(lab: Lab) -> None:
    for query in ("", "from=-1h", "panels=busy,flow,queue,tokens", "to=now",
                  "from=2026-11-30T01:00Z&to=2026-11-30T02:00:00%2B00:00",
                  "from=2026-11-30T01:00:00+00:00"):  # fmt: skip
        answer = lab.call("viewer", "GET", f"/api/v1/deployments/{SLUG}/series/?{query}")
        assert answer.status_code == 200, answer.content
        assert answer.json()["n"] > 0


def test_the_closed_lists_are_those_of_the_rooms() -> None:
    for names, kind in (
        (deployments.ENVIRONMENTS, Environment),
        (deployments.MODES, Mode),
        (deployments.SOURCE_KINDS, SourceKind),
        (deployments.SOURCE_STATES, SourceState),
        (planning.STATES, RecommendationState),
        (planning.SIGNALS, ObjectiveSignal),
    ):
        assert sorted(names) == sorted(member.value for member in kind)


def test_every_field_that_may_be_sorted_by_is_never_null(lab: Lab) -> None:
    from apps.api.filters import sortable

    furnish(lab)
    lab.propose()
    for name, view in ENDPOINTS.items():
        if issubclass(view, Constant):
            continue
        model = view().rows(lab.viewer("operator")).model
        for field in sortable(view):
            assert not model._meta.get_field(field).null, (name, field)
            for sign in ("", "-"):
                rows = walk(lab, f"/api/v1/{name}/?sort={sign}{field}&page_size=2")
                assert len(rows) == len(walk(lab, f"/api/v1/{name}/?page_size=200"))
