"""The adapters by name. Adding one is one line here and one package beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .errors import UnknownAdapter
from .noop.adapter import NoopAdapter
from .protocol import Adapter, Connection
from .router_workers.adapter import RouterWorkersAdapter

_BUILDERS: Final[dict[str, Callable[[Connection], Adapter]]] = {
    NoopAdapter.name: NoopAdapter,
    RouterWorkersAdapter.name: RouterWorkersAdapter,
}


def names() -> tuple[str, ...]:
    """Names a deployment's backend may have."""
    return tuple(_BUILDERS)


def build(name: str, connection: Connection) -> Adapter:
    """The adapter of that name for a connection; raises UnknownAdapter or BadConnection."""
    builder = _BUILDERS.get(name)
    if builder is None:
        raise UnknownAdapter(name)
    return builder(connection)


def builders() -> Mapping[str, Callable[[Connection], Adapter]]:
    """All builders (for tests that must cover each adapter)."""
    return dict(_BUILDERS)
