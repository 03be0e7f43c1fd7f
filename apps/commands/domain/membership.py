"""Who is where while a command runs, and what somebody else changed (DESIGN law 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.backends.protocol import ABSENT, Snapshot, StepKind, StepSpec


@dataclass(frozen=True, slots=True)
class ForeignChange:
    """One worker that is not where the command left it. `change` is `added`, `removed`, `role`."""

    url: str
    change: str
    was: str
    found: str

    def to_json(self) -> dict[str, str]:
        return {"url": self.url, "change": self.change, "was": self.was, "found": self.found}


def members(snapshot: Snapshot) -> dict[str, str]:
    """Address to role of the workers that take traffic or would, were they healthy."""
    return {w.url: w.role for w in snapshot.workers if w.status not in (ABSENT, "draining")}


def after(before: Mapping[str, str], steps: Sequence[StepSpec]) -> dict[str, str]:
    """The members once these steps are done."""
    now = dict(before)
    for step in steps:
        if step.kind is StepKind.REMOVE_WORKER:
            now.pop(step.worker.url, None)
        elif step.kind is StepKind.ADD_WORKER:
            now[step.worker.url] = step.target_role
    return now


def foreign_changes(
    before: Mapping[str, str],
    done: Sequence[StepSpec],
    under_way: StepSpec | None,
    observed: Mapping[str, str],
) -> tuple[ForeignChange, ...]:
    """What differs from the members that the finished steps left, beyond the step under way.

    The worker of the step under way may be as before the step or as after it.
    """
    expected = after(before, done)
    either = after(expected, (under_way,)) if under_way is not None else expected
    found = []
    for url in sorted({*expected, *observed}):
        role = observed.get(url)
        if role in (expected.get(url), either.get(url)):
            continue
        was = expected.get(url)
        if was is None:
            found.append(ForeignChange(url, "added", "", role or ""))
        elif role is None:
            found.append(ForeignChange(url, "removed", was, ""))
        else:
            found.append(ForeignChange(url, "role", was, role))
    return tuple(found)


def counts(observed: Mapping[str, str]) -> dict[str, int]:
    """Members per role."""
    found: dict[str, int] = {}
    for role in observed.values():
        found[role] = found.get(role, 0) + 1
    return found
