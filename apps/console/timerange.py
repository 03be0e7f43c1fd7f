"""The time range of a page from its address: `from=-3h`, or absolute UTC ISO 8601.

Relative ranges end now and stay live; absolute ones stand still. Windows of the diagnosis never
depend on the range (`design/ui.md` §4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.overview.series import LONGEST

from .reader import Reader

DEFAULT: Final = "-3h"
#: Where figures are collected more often than every 15 s (the demo preset), a story is short.
DEFAULT_FAST: Final = "-15m"
#: Query value, words.
CHOICES: Final[tuple[tuple[str, str | Promise], ...]] = (
    ("-15m", _("Last 15 min")),
    ("-1h", _("Last 1 h")),
    ("-3h", _("Last 3 h")),
    ("-12h", _("Last 12 h")),
    ("-24h", _("Last 24 h")),
    ("-7d", _("Last 7 days")),
    ("-30d", _("Last 30 days")),
    ("-90d", _("Last 90 days")),
)
_RELATIVE: Final = re.compile(r"^-(\d{1,4})([mhd])$")
_UNIT_S: Final = {"m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Start and end in UTC; `is_live` when it ends now."""

    start: datetime
    end: datetime
    given: str
    is_live: bool
    label: str
    zone: tzinfo = UTC

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    @property
    def start_iso(self) -> str:
        return _iso(self.start)

    @property
    def end_iso(self) -> str:
        return _iso(self.end)

    @property
    def start_local(self) -> str:
        """For a date field, in the reader's zone."""
        return f"{self.start.astimezone(self.zone):%Y-%m-%dT%H:%M}"

    @property
    def end_local(self) -> str:
        return f"{self.end.astimezone(self.zone):%Y-%m-%dT%H:%M}"

    def live_interval_s(self, collect_interval_s: float) -> int:
        """15 s up to 1 h, 30 s to 12 h, 60 s to 24 h, 0 (off) beyond or when not live.

        A faster collection (the demo preset) refreshes as often as it collects, up to 3 h.
        """
        if not self.is_live or self.seconds > 24 * 3600:
            return 0
        if self.seconds > 12 * 3600:
            return 60
        base = 15 if self.seconds <= 3 * 3600 else 30
        return int(max(5, min(base, collect_interval_s))) if base == 15 else base


def _iso(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def parse(params: Mapping[str, str], reader: Reader, default: str = DEFAULT) -> TimeRange:
    """The range of an address; anything that is not understood is the default."""
    given = params.get("from", default)
    until = params.get("to", "")
    relative = _RELATIVE.match(given)
    if relative and not until:
        return _relative(given, relative, reader)
    start, end = _moment(given, reader), _moment(until, reader) if until else reader.now
    if start is None or end is None or end <= start or end - start > LONGEST:
        found = _RELATIVE.match(default)
        assert found is not None
        return _relative(default, found, reader)
    label = f"{reader.time(start)} – {reader.time(end)}"
    return TimeRange(start, end, given, not until, label, reader.zone)


def _relative(given: str, found: re.Match[str], reader: Reader) -> TimeRange:
    seconds = int(found[1]) * _UNIT_S[found[2]]
    span = min(LONGEST, timedelta(seconds=max(60, seconds)))
    words = dict(CHOICES).get(given)
    label = str(words) if words is not None else given
    return TimeRange(reader.now - span, reader.now, given, True, label, reader.zone)


def _moment(text: str, reader: Reader) -> datetime | None:
    relative = _RELATIVE.match(text)
    if relative:
        return reader.now - timedelta(seconds=int(relative[1]) * _UNIT_S[relative[2]])
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    # A time without an offset comes from the page's own fields, in the reader's zone.
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=reader.zone).astimezone(UTC)
