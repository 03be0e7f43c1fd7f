"""Writes of commands, split by noun."""

from . import facts
from .automatic import apply_open_recommendations
from .checks import Check
from .decide import approve, cancel, may_approve, reject
from .engine import Driven, drive, due_ids
from .errors import CommandError
from .kill_switch import set_kill_switch, stop_reason
from .propose import DryRun, propose
from .rooms import RoomFacts
from .way_back import rollback

facts.provider = RoomFacts()

__all__ = [
    "Check",
    "CommandError",
    "Driven",
    "DryRun",
    "apply_open_recommendations",
    "approve",
    "cancel",
    "drive",
    "due_ids",
    "may_approve",
    "propose",
    "reject",
    "rollback",
    "set_kill_switch",
    "stop_reason",
]
