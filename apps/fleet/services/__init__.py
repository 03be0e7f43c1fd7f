"""Writes of the inventory, split by noun."""

from .backends import connect_backend, observe_backend
from .catalog import load_catalog
from .changes import (
    StaleRevision,
    begin_change,
    finish_change,
    note_foreign_change,
    set_wanted,
)
from .inventory import (
    declare_node,
    declare_pool,
    declare_worker,
    register_cluster,
    register_deployment,
    set_mode,
)
from .spans import record_role, set_span

__all__ = [
    "StaleRevision",
    "begin_change",
    "connect_backend",
    "declare_node",
    "declare_pool",
    "declare_worker",
    "finish_change",
    "load_catalog",
    "note_foreign_change",
    "observe_backend",
    "record_role",
    "register_cluster",
    "register_deployment",
    "set_mode",
    "set_span",
    "set_wanted",
]
