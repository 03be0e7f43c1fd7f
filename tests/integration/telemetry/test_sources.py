"""Connecting sources: who may, what is checked, what happens to secrets."""

from __future__ import annotations

import pytest

from apps.accounts.domain.authorize import (
    SYSTEM,
    Binding,
    NotAllowed,
    Role,
    ScopeKind,
    Viewer,
)
from apps.audit.models import AuditEvent
from apps.common.fetch import FetchError
from apps.fleet import connect
from apps.telemetry import selectors, services
from apps.telemetry.models import Source
from apps.telemetry.services.sources import bound_to

from .conftest import T0
from .metric_servers import MetricServer, Registry

pytestmark = pytest.mark.django_db


def viewer(role: Role, kind: ScopeKind, scope_id=None) -> Viewer:
    return Viewer(None, "alice", (Binding(role, kind, scope_id),))


def test_only_an_admin_of_the_scope_connects(metric_fleet):
    cluster = metric_fleet.deployment.cluster
    options = {"now": T0, "cluster": cluster, "kind": "scrape"}
    for actor in (
        viewer(Role.OPERATOR, ScopeKind.INSTALLATION),
        viewer(Role.ADMIN, ScopeKind.DEPLOYMENT, metric_fleet.deployment.pk),
    ):
        with pytest.raises(NotAllowed):
            services.create_source(actor=actor, **options)
    admin = viewer(Role.ADMIN, ScopeKind.CLUSTER, cluster.pk)
    source = services.create_source(actor=admin, **options)
    event = AuditEvent.objects.get(action="source.create", object_id=str(source.pk))
    assert event.actor_name == "alice"


def test_the_address_of_a_prometheus_is_checked(metric_fleet):
    for url in ("http://169.254.169.254/", "http://127.0.0.1:9/", "ftp://10.0.0.1/", ""):
        with pytest.raises(FetchError):
            services.create_source(
                actor=SYSTEM, now=T0, cluster=metric_fleet.deployment.cluster, kind="prometheus",
                url=url,
            )  # fmt: skip
    with pytest.raises(ValueError, match="label"):
        services.create_source(
            actor=SYSTEM, now=T0, cluster=metric_fleet.deployment.cluster, kind="prometheus",
            url="http://10.0.0.1:9090", parameters={"instance_label": "x'} or vector(1) #"},
        )  # fmt: skip


def test_a_new_address_clears_the_credential(metric_fleet):
    source = services.create_source(
        actor=SYSTEM, now=T0, cluster=metric_fleet.deployment.cluster, kind="prometheus",
        url="http://10.0.0.1:9090", credential="hunter2-canary",
    )  # fmt: skip
    stored = Source.objects.get(pk=source.pk)
    box = connect.secret_box()
    assert box.open(stored.credential_sealed, bound_to=bound_to(source.pk)) == "hunter2-canary"
    services.change_source(actor=SYSTEM, now=T0, source_id=source.pk, interval_s=30)
    assert Source.objects.get(pk=source.pk).credential_sealed == stored.credential_sealed
    services.change_source(actor=SYSTEM, now=T0, source_id=source.pk, url="http://10.0.0.2:9090")
    assert Source.objects.get(pk=source.pk).credential_sealed == ""
    assert "hunter2-canary" not in str(list(AuditEvent.objects.values_list("before", "after")))


def test_scope_decides_who_sees_a_source(metric_fleet):
    mine = viewer(Role.VIEWER, ScopeKind.DEPLOYMENT, metric_fleet.deployment.pk)
    stranger = Viewer(None, "charlie")
    assert [s.pk for s in selectors.sources_for(mine)] == [metric_fleet.source().pk]
    assert not selectors.sources_for(stranger).exists()
    assert selectors.sources_for(SYSTEM).count() == 1


def test_a_direct_scrape_has_no_credential_to_lose(metric_fleet):
    """Its addresses come from routers, one of which could name a collector of secrets."""
    cluster = metric_fleet.deployment.cluster
    with pytest.raises(ValueError, match="credential"):
        services.create_source(
            actor=SYSTEM, now=T0, cluster=cluster, kind="scrape", credential="canary"
        )
    with pytest.raises(ValueError, match="credential"):
        services.change_source(
            actor=SYSTEM, now=T0, source_id=metric_fleet.source().pk, credential="canary"
        )


def test_a_credential_under_an_unknown_key_is_not_used(metric_fleet, settings):
    metric_fleet.source().delete()
    source = services.create_source(
        actor=SYSTEM, now=T0, cluster=metric_fleet.deployment.cluster, kind="prometheus",
        url=metric_fleet.url("p0"), credential="canary-9",
    )  # fmt: skip
    settings.FULCRUM_SECRET_BOX_KEYS = ["another-key"]
    result = services.collect_source(source_id=source.pk, now=T0, owner="t")
    assert (result.answered, metric_fleet.servers["p0"].requests) == (0, 0)
    source.refresh_from_db()
    assert source.state == "down"
    assert "not configured" in source.last_error and "canary-9" not in source.last_error


def test_something_that_is_no_prometheus_is_down_with_a_safe_reason(metric_fleet):
    metric_fleet.source().delete()
    source = services.create_source(
        actor=SYSTEM, now=T0, cluster=metric_fleet.deployment.cluster, kind="prometheus",
        url=metric_fleet.url("p0"),
    )  # fmt: skip
    services.collect_source(source_id=source.pk, now=T0, owner="t")
    source.refresh_from_db()
    assert (source.state, source.last_error) == ("down", "the Prometheus refused the query")


def test_a_deployment_without_source_has_no_targets(metric_fleet):
    Source.objects.all().delete()
    assert services.sync_targets(metric_fleet.deployment) == ()


def test_a_source_of_the_cluster_serves_deployments_without_their_own(metric_fleet):
    own = metric_fleet.source()
    shared = services.create_source(
        actor=SYSTEM, now=T0, cluster=metric_fleet.deployment.cluster, kind="scrape", interval_s=5
    )
    assert services.collect_source(source_id=shared.pk, now=T0, owner="t").targets == 0
    own.delete()
    assert services.collect_source(source_id=shared.pk, now=T0, owner="t").answered == 5


def test_an_unknown_engine_is_not_read_as_another(metric_fleet):
    from apps.fleet.models import Pool

    Pool.objects.filter(role="decode").update(engine="something-new")
    targets = services.sync_targets(metric_fleet.deployment)
    assert sorted(t.scope for t in targets) == ["engine", "engine", "router"]
    metric_fleet.collect()
    metric_fleet.collect()
    found = selectors.figures(metric_fleet.deployment, metric_fleet.at)
    assert found.decode.running.state.value == "no_data"


def test_metric_servers_are_what_they_seem():
    server = MetricServer(Registry("rust"))
    server.registry.observe("x", (1, 2.5), 2, a="b")
    assert 'x_bucket{a="b",le="2.5"} 1' in server.registry.text()
    server.stop()
