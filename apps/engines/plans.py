"""What a profile means in one role, worked out once: the rows to try, the series that count.

Every target of a large fleet is read by one of few (profile, role) pairs, on every tick.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.common.units import Unit

from .exposition import Labels
from .schema import Profile, Ref, Row
from .window import Kind, Signal


@dataclass(frozen=True, slots=True)
class Filter:
    """Which series of a metric count, by their labels (one that is missing is empty): values a
    label must or must not have, patterns its whole value must not match."""

    allowed: tuple[tuple[str, frozenset[str]], ...]
    forbidden: tuple[tuple[str, frozenset[str]], ...]
    unlike: tuple[tuple[str, re.Pattern[str]], ...]

    def passes(self, labels: Labels) -> bool:
        present = dict(labels)
        for name, values in self.allowed:
            if present.get(name, "") not in values:
                return False
        for name, values in self.forbidden:
            if present.get(name, "") in values:
                return False
        if not self.unlike:
            return True
        return not any(p.fullmatch(present.get(name, "")) for name, p in self.unlike)


@dataclass(frozen=True, slots=True)
class Plan:
    """A profile in a role: per signal its kind, its unit and the rows to try in order."""

    profile: Profile
    role: str
    rows: Mapping[Signal, tuple[Kind, Unit, tuple[Row, ...]]]
    _filters: dict[str, Filter | None] = field(default_factory=dict)

    def filter(self, ref: Ref) -> Filter | None:
        """The filter on the series of a metric; None where all count."""
        if ref.key not in self._filters:
            self._filters[ref.key] = _filter(self.profile, self.role, ref)
        return self._filters[ref.key]


def plan_of(profile: Profile, role: str) -> Plan:
    """The plan of a profile in a role; made once."""
    found: Plan | None = profile.plans.get(role)
    if found is None:
        rows = {
            signal: (rows.kind, rows.unit, profile.rows(signal, role))
            for signal, rows in profile.signals.items()
        }
        found = profile.plans[role] = Plan(profile, role, rows)
    return found


def _filter(profile: Profile, role: str, ref: Ref) -> Filter | None:
    allowed = [(name, frozenset(values)) for name, values in ref.labels.items()]
    allowed += [(name, frozenset({""})) for name in profile.totals]
    own = profile.allowed_roles(role)
    if profile.role_label is not None and own is not None:
        # A series that does not name its role belongs to the target's.
        allowed.append((profile.role_label.name, frozenset({"", *own})))
    forbidden = [(name, frozenset(values)) for name, values in ref.without.items()]
    unlike = [(name, re.compile(pattern)) for name, pattern in ref.unlike.items()]
    if not (allowed or forbidden or unlike):
        return None
    return Filter(tuple(allowed), tuple(forbidden), tuple(unlike))
