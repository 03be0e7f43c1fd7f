"""Inventory: identity, spans, compare-and-swap, secrets, scope."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import override_settings

from apps.accounts.domain.authorize import SYSTEM, Binding, NotAllowed, Role, ScopeKind, Viewer
from apps.common.fetch import FetchError
from apps.fleet import connect, selectors, services
from apps.fleet.models import Backend, Deployment, Pool, Span, Worker
from apps.fleet.services.inventory import LooseningNeedsApproval
from tests.support.builders import NOW, deployment, world

pytestmark = pytest.mark.django_db


def test_the_catalog_loads_twice_to_the_same_rows() -> None:
    first = services.load_catalog()
    assert services.load_catalog() == first
    assert selectors.accelerators().get(slug="h200-sxm").list_price_usd_per_hour == "4.59"
    assert selectors.architectures().get(hf_id="Qwen/Qwen3-32B").kv_bytes_per_token == 262_144


def test_topology_and_gpus() -> None:
    w = world()
    topology = selectors.topology(w.deployment)
    assert topology.serving_count("prefill") == 2
    assert topology.serving_count("decode") == 4
    assert topology.gpus_of("decode") == Decimal(4)
    assert selectors.gpus_provisioned(w.cluster.pk, NOW) == Decimal(6)
    assert selectors.gpus_in_use(w.cluster.pk) == Decimal(6)


def test_an_unknown_unit_is_unknown_not_zero() -> None:
    w = world()
    Pool.objects.filter(role="decode").update(devices_per_worker=None)
    assert selectors.gpus_in_use(w.cluster.pk) is None
    assert selectors.topology(w.deployment).gpus_of("decode") is None


def test_wanted_counts_move_by_compare_and_swap() -> None:
    w = world()
    revision = services.set_wanted(
        actor=SYSTEM,
        now=NOW,
        deployment_id=w.deployment.pk,
        wanted={"prefill": 3, "decode": 3},
        expected_revision=1,
    )
    assert revision == 2
    with pytest.raises(services.StaleRevision) as caught:
        services.set_wanted(
            actor=SYSTEM,
            now=NOW,
            deployment_id=w.deployment.pk,
            wanted={"prefill": 5, "decode": 1},
            expected_revision=1,
        )
    assert caught.value.params["current"] == 2
    assert caught.value.wanted == {"prefill": 3, "decode": 3}
    assert dict(Pool.objects.values_list("role", "wanted_workers")) == {"prefill": 3, "decode": 3}


def test_a_role_change_ends_one_span_and_starts_the_next() -> None:
    w = world()
    worker = Worker.objects.get(name="d-0")
    later = NOW + timedelta(minutes=5)
    services.record_role(now=later, worker_id=worker.pk, role="prefill", source="reported")
    services.record_role(now=later, worker_id=worker.pk, role="prefill", source="reported")
    assert selectors.role_at(worker.pk, NOW + timedelta(minutes=4)) == "decode"
    assert selectors.role_at(worker.pk, later) == "prefill"
    assert Span.objects.filter(subject_id=worker.pk, attribute="role").count() == 2
    assert w.deployment.pk == worker.deployment_id


def test_a_new_address_clears_the_credentials() -> None:
    w = world()
    arguments = {
        "actor": SYSTEM, "now": NOW, "deployment": w.deployment, "adapter": "router_workers",
        "parameters": {},
    }  # fmt: skip
    with override_settings(FULCRUM_LOOPBACK_PORTS=frozenset({21500, 21501})):
        services.connect_backend(
            address="http://127.0.0.1:21500",
            credential="s3cret",
            engine_credential="e",
            **arguments,
        )
        backend = Backend.objects.get()
        assert "s3cret" not in backend.credential_sealed
        assert connect.connection_for(backend).credential == "s3cret"
        assert "s3cret" not in repr(connect.connection_for(backend))
        services.connect_backend(address="http://127.0.0.1:21501", **arguments)
        backend.refresh_from_db()
        assert connect.connection_for(backend).credential == ""
        assert connect.connection_for(backend).engine_credential == ""
    with pytest.raises(FetchError, match="loopback"):
        services.connect_backend(address="http://127.0.0.1:21502", **arguments)
    assert Backend.objects.get().address == "http://127.0.0.1:21501"


def test_scope_first_every_read_is_bounded() -> None:
    w = world()
    other = services.register_cluster(
        actor=SYSTEM, now=NOW, slug="far", name="Far", uid="far", mode_cap="auto"
    )
    hidden = deployment(other, "hidden", port=22_000)
    bound = Viewer(w.alice.pk, "alice", (Binding(Role.VIEWER, ScopeKind.CLUSTER, w.cluster.pk),))
    assert [d.slug for d in selectors.deployments_for(bound)] == ["chat-pd"]
    assert {p.deployment.slug for p in selectors.pools_for(bound)} == {"chat-pd"}
    assert {x.deployment.slug for x in selectors.workers_for(bound)} == {"chat-pd"}
    assert [c.slug for c in selectors.clusters_for(bound)] == ["lab"]
    assert selectors.devices_for(bound).count() == 6
    with pytest.raises(selectors.NotVisible):
        selectors.deployment_by_slug(bound, hidden.slug)
    stranger = w.viewer(w.charlie)
    assert not selectors.deployments_for(stranger).exists()
    assert not selectors.clusters_for(stranger).exists()
    assert not selectors.nodes_for(stranger).exists()


def test_loosening_the_mode_outside_the_demo_waits_for_a_second_person() -> None:
    w = world(environment="production", mode="observe")
    admin = Viewer(w.bob.pk, "bob", (Binding(Role.ADMIN, ScopeKind.INSTALLATION),))
    row = Deployment.objects.get()
    with pytest.raises(LooseningNeedsApproval):
        services.set_mode(actor=admin, now=NOW, deployment=row, mode="auto")
    with pytest.raises(NotAllowed):
        services.set_mode(actor=w.viewer(w.alice), now=NOW, deployment=row, mode="observe")
    row.refresh_from_db()
    assert row.mode == "observe"


def test_old_slugs_redirect() -> None:
    from apps.fleet.models import SlugRedirect

    w = world()
    SlugRedirect.objects.create(slug="old-name", deployment=w.deployment)
    found = selectors.deployment_by_slug(w.viewer(w.alice), "old-name")
    assert found.pk == w.deployment.pk
