"""From a deployment's stored backend to a ready adapter: opens secrets, binds the fetcher."""

from __future__ import annotations

from functools import partial

from django.conf import settings

from apps.backends import registry
from apps.backends.protocol import Adapter, Connection
from apps.common.fetch import FetchPolicy, fetch
from apps.common.secretbox import SecretBox

from .models import Backend, Deployment


def fetch_policy() -> FetchPolicy:
    """Which addresses entered by people may be called, from the settings (DESIGN law 14)."""
    return FetchPolicy(
        allowed_networks=tuple(settings.FULCRUM_ALLOWED_NETWORKS),
        loopback_ports=frozenset(settings.FULCRUM_LOOPBACK_PORTS),
    )


def secret_box() -> SecretBox:
    """The box of the configured keys."""
    return SecretBox(settings.FULCRUM_SECRET_BOX_KEYS)


def bound_to(deployment_id: object, field: str) -> str:
    """The place a backend secret is sealed for."""
    return f"fleet.backend:{deployment_id}:{field}"


def connection_for(backend: Backend) -> Connection:
    """The connection with opened secrets; raises SecretUnreadable if no key opens them."""
    box = secret_box()
    sealed = {
        field: getattr(backend, f"{field}_sealed") for field in ("credential", "engine_credential")
    }
    opened = {
        field: box.open(text, bound_to=bound_to(backend.deployment_id, field)) if text else ""
        for field, text in sealed.items()
    }
    return Connection(
        address=backend.address,
        metrics_address=str(backend.parameters.get("metrics_url", "")),
        credential=opened["credential"],
        engine_credential=opened["engine_credential"],
        parameters={key: str(value) for key, value in backend.parameters.items()},
        fetch=partial(fetch, policy=fetch_policy()),
    )


def adapter_for(deployment: Deployment) -> Adapter:
    """The adapter a deployment is observed and commanded through."""
    backend = deployment.backend
    return registry.build(backend.adapter, connection_for(backend))
