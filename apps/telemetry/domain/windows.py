"""From the readings of targets to the windows of one tick, and chains of windows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from apps.engines.combine import TargetPart, combine
from apps.engines.evaluate import Defect, evaluate
from apps.engines.readings import Reading
from apps.engines.schema import Profile
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Window
from apps.fleet.domain.spans import SpanFacts, value_at

ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class TargetHistory:
    """One target and what it answered, oldest first.

    `owner` is the worker's URL (its identity in windows) or the target's own address. `roles` are
    the worker's role spans; `role_now` stands in where no span covers a time.
    """

    owner: str
    scope: str
    profile: Profile
    readings: Sequence[tuple[datetime, Reading]]
    role_now: str = ""
    roles: Sequence[SpanFacts] = ()

    def role_at(self, at: datetime) -> str:
        """The inventory's role at a time."""
        if self.scope != ENGINE:
            return self.scope
        found = value_at(self.roles, at)
        return str(found) if found is not None else self.role_now


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive readings of one role, the first taken at `since`. `starts_only_first`: the first
    of them, the base, was taken before the role changed. `after`: the first reading of the next
    role."""

    role: str
    readings: tuple[Reading, ...]
    since: datetime
    starts_only_first: bool = False
    is_last: bool = False
    after: Reading | None = None


@dataclass(slots=True)
class _Scope:
    parts: list[TargetPart] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)
    since: list[datetime] = field(default_factory=list)

    def covered_s(self, start: datetime, end: datetime) -> float | None:
        """Seconds that the increases cover, where they are not the window's: fewer after a silence,
        more where every target missed the start and counts from its last answer before it. Rates
        are over these. None: the window itself."""
        if not self.since or min(self.since) >= end:
            return None
        seen_from = min(max(start, min(self.since)), max(self.since))
        return None if seen_from == start else (end - seen_from).total_seconds()


def window_start(
    ticks: Iterable[datetime], end: datetime, window_s: float, interval_s: float
) -> datetime:
    """Where the window that ends at `end` starts: at an earlier tick, so that windows tile exactly.

    The first tick not earlier than `end - window_s` less half an interval; `end` itself when there
    is none (the first tick has gauges only).
    """
    earliest = end - timedelta(seconds=window_s + interval_s / 2)
    return min((tick for tick in ticks if earliest <= tick <= end), default=end)


def segments(history: TargetHistory, start: datetime, end: datetime) -> tuple[Segment, ...]:
    """The readings of `[start, end]` cut at role changes (a window never crosses one).

    A target that did not answer at `start` itself is counted from its last answer before it, where
    that is known: what it did in between belongs to no earlier window.
    """
    inside = [(at, reading) for at, reading in history.readings if start <= at <= end]
    before = [(at, reading) for at, reading in history.readings if at < start]
    if inside and before and inside[0][0] > start:
        inside.insert(0, before[-1])
    found: list[Segment] = []
    group: list[tuple[datetime, Reading]] = []
    role = ""
    base: tuple[datetime, Reading] | None = None
    for at, reading in inside:
        here = history.role_at(at)
        if group and here != role:
            found.append(replace(_segment(role, base, group), after=reading))
            base, group = group[-1], []
        role = here
        group.append((at, reading))
    if group:
        found.append(_segment(role, base, group, is_last=inside[-1][0] == end))
    return tuple(found)


def _segment(
    role: str,
    base: tuple[datetime, Reading] | None,
    group: Sequence[tuple[datetime, Reading]],
    *,
    is_last: bool = False,
) -> Segment:
    whole = group if base is None else (base, *group)
    return Segment(
        role,
        tuple(reading for _, reading in whole),
        whole[0][0],
        starts_only_first=base is not None,
        is_last=is_last,
    )


def windows_of_tick(
    histories: Iterable[TargetHistory],
    *,
    start: datetime,
    end: datetime,
    expected: Mapping[str, Sequence[str]],
    source: str,
    is_partial: bool = False,
    with_histograms: bool = True,
    phase_s: float = 0.0,
    refused: list[Defect] | None = None,
) -> tuple[Window, ...]:
    """One window per scope from which something answered at `end`. A target that was away for
    longer than its scope is not among those that reported. A tick that did not read histograms
    has none (`with_histograms`): not found is not the same as not read. `phase_s`: targets that
    are read one after another are up to so far apart, which makes none of them late. `refused`
    receives the figures that cannot be and were left out."""
    scopes: dict[str, _Scope] = {}
    last: list[tuple[TargetHistory, Segment]] = []
    for history in histories:
        for segment in segments(history, start, end):
            reader = ScrapedReader(
                history.profile,
                segment.role,
                segment.readings,
                starts_only_first=segment.starts_only_first,
                after=segment.after if history.profile.role_label else None,
            )
            signals = evaluate(
                history.profile, segment.role, reader, refused, with_histograms=with_histograms
            )
            scope = scopes.setdefault(segment.role, _Scope())
            scope.parts.append(TargetPart(history.owner, signals, segment.is_last))
            scope.since.append(segment.since)
            if segment.is_last:
                last.append((history, segment))
    for history, segment in last:
        scope = scopes[segment.role]
        if not _is_late(history, segment, scope, start, timedelta(seconds=phase_s)):
            scope.reported.add(history.owner)
    return finish(
        scopes, start=start, end=end, expected=expected, source=source, is_partial=is_partial
    )


def _is_late(
    history: TargetHistory, segment: Segment, scope: _Scope, start: datetime, phase: timedelta
) -> bool:
    """True if the target was in the segment's role at `start`, but what it did from there on until
    its first answer is unknown, while others of the scope were seen: its rates are too low."""
    return (
        segment.since > start
        and segment.since > min(scope.since) + phase
        and (history.scope != ENGINE or value_at(history.roles, start) == segment.role)
    )


def finish(
    scopes: Mapping[str, _Scope],
    *,
    start: datetime,
    end: datetime,
    expected: Mapping[str, Sequence[str]],
    source: str,
    is_partial: bool = False,
) -> tuple[Window, ...]:
    """The windows of scopes with at least one report; a scope in silence stores nothing, so that
    its figures grow old instead of empty."""
    return tuple(
        combine(
            scope=name,
            start=start,
            end=end,
            parts=scope.parts,
            expected=expected.get(name) or sorted(scope.reported),
            reported=scope.reported,
            source=source,
            is_partial=is_partial,
            covered_s=scope.covered_s(start, end),
        )
        for name, scope in sorted(scopes.items())
        if name and scope.reported
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """A stored window without its payload."""

    key: int
    start: datetime
    end: datetime


def chain(slots: Sequence[Slot], *, end: datetime, span_s: float) -> tuple[Slot, ...]:
    """Non-overlapping windows that reach back `span_s` from the newest end `<= end`, newest first.

    Windows tile exactly where no tick was missed; a missed tick leaves a gap, never an overlap.
    """
    ordered = sorted(
        (slot for slot in slots if slot.end <= end), key=lambda s: (s.end, s.start), reverse=True
    )
    if not ordered:
        return ()
    found = [ordered[0]]
    earliest = ordered[0].end - timedelta(seconds=span_s)
    for slot in ordered[1:]:
        if slot.end <= found[-1].start and slot.end > earliest:
            if slot.start < earliest and (earliest - slot.start) > (slot.end - earliest):
                break
            found.append(slot)
    return tuple(found)


def tiles(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """The windows to keep when the sliding ones are thinned out: oldest first, each next one
    starts where the last ended (or as soon after it as there is one)."""
    kept: list[Slot] = []
    for slot in sorted(slots, key=lambda s: (s.start, -s.end.timestamp())):
        if slot.end <= slot.start:
            continue
        if not kept or slot.start >= kept[-1].end:
            kept.append(slot)
    return tuple(kept)
