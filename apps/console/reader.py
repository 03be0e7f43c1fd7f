"""The reader of a page: their zone and the time of the request; times and durations in words.

All times in storage and API are UTC. A page writes local time, 24 h, the date when it is not
today, and keeps UTC for the hover text (`design/ui.md` §5).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from django.utils.formats import date_format
from django.utils.translation import gettext, ngettext, pgettext

NBSP = "\u00a0"


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads: the zone that times are written in, and now (aware, UTC)."""

    zone: ZoneInfo
    now: datetime

    def local(self, at: datetime) -> datetime:
        return at.astimezone(self.zone)

    def time(self, at: datetime) -> str:
        """02:05 today, "Sat 18:20" within a week, else with the date."""
        there, today = self.local(at), self.local(self.now)
        days = (today.date() - there.date()).days
        if days == 0:
            return f"{there:%H:%M}"
        if 0 < days < 7:
            return date_format(there, pgettext("date format: weekday and time", "D H:i"))
        if there.year == today.year:
            return date_format(there, pgettext("date format: day and time", "M j H:i"))
        return date_format(there, pgettext("date format: day, year and time", "M j, Y H:i"))

    def seconds(self, at: datetime) -> str:
        """A time of day with seconds, for lists of steps."""
        return f"{self.local(at):%H:%M:%S}"

    def utc(self, at: datetime) -> str:
        """The hover text of a time."""
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

    def zone_name(self) -> str:
        """The zone as it is always written: Asia/Shanghai (UTC+8)."""
        offset = self.local(self.now).utcoffset()
        minutes = int(offset.total_seconds() // 60) if offset else 0
        if not minutes:
            return "UTC" if self.zone.key == "UTC" else f"{self.zone.key} (UTC+0)"
        sign = "+" if minutes > 0 else "−"
        hours, rest = divmod(abs(minutes), 60)
        return f"{self.zone.key} (UTC{sign}{hours}{f':{rest:02d}' if rest else ''})"


def duration(seconds: float | None) -> str:
    """A duration in words of the active language: 95 s, 63 min, 3 h 5 min, 2 days."""
    if seconds is None:
        return "–"
    whole = max(0.0, float(seconds))
    if whole < 120:
        return gettext("{n} s").format(n=f"{whole:.0f}").replace(" ", NBSP)
    minutes = int(whole // 60)
    if minutes < 90:
        return gettext("{n} min").format(n=minutes).replace(" ", NBSP)
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        if rest:
            both = gettext("{hours} h {minutes} min").format(hours=hours, minutes=rest)
            return both.replace(" ", NBSP)
        return gettext("{n} h").format(n=hours).replace(" ", NBSP)
    days = hours // 24
    return ngettext("{n} day", "{n} days", days).format(n=days).replace(" ", NBSP)


def exact_duration(seconds: float | None) -> str:
    """A measured duration under ten minutes keeps its seconds: 3 min 48 s."""
    if seconds is None or not 120 <= seconds < 600:
        return duration(seconds)
    minutes, rest = divmod(int(seconds), 60)
    if not rest:
        return duration(seconds)
    both = gettext("{minutes} min {seconds} s").format(minutes=minutes, seconds=rest)
    return both.replace(" ", NBSP)
