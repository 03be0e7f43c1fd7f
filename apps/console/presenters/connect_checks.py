"""What the Connect wizard's checks say: test of a source, coverage, dry run, modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.common import formatting
from apps.overview.domain.types import Text
from apps.telemetry.domain.coverage import CoverageLine, CoverageReport, Found
from apps.telemetry.domain.draft_coverage import bucket_coverage

from ..reader import Reader, duration
from ..wording import connect as words
from ..wording import labels, say
from ..wording.kinds import join

#: A clock that differs by more than this is told as a warning, in seconds.
_SKEW_WARN_S: Final = 2.0
_STATUS: Final = {
    Found.FOUND: "ok",
    Found.PART: "warn",
    Found.CONFLICT: "crit",
    Found.MISSING: "unknown",
    Found.UNAVAILABLE: "info",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line with the shape of its status; `sub` explains it, `copy` is text to copy."""

    status: str
    text: str
    sub: str = ""
    place: str = ""
    used_by: str = ""
    copy: str = ""


@dataclass(frozen=True, slots=True)
class CoverageCard:
    title: str
    level: str
    lines: tuple[Line, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ModeOption:
    code: str
    name: str
    text: str
    reason: str
    is_chosen: bool


def tested(test: Mapping[str, Any] | None, at: datetime | None, reader: Reader) -> list[Line]:
    """What a test of the source found, worst first where it failed."""
    if test is None:
        return []
    when = _("tested at {time}").format(time=reader.time(at)) if at else ""
    if test["problem"]:
        status = test.get("status") or ""
        lines = [Line("crit", words.say(words.PROBLEMS, test["problem"], status=status), when)]
    elif test["kind"] == "prometheus":
        lines = [Line("ok", _("It answers as a Prometheus."), when), *_facts(test)]
    else:
        lines = [Line("ok", _("Metrics can be read."), when)]
    return [*lines, *_addresses(test)]


def _facts(test: Mapping[str, Any]) -> list[Line]:
    untold = _("not told by this server")
    intervals = test["intervals"]
    shown = join(
        ngettext("{every} ({count} target)", "{every} ({count} targets)", count).format(
            every=duration(every), count=count
        )
        for every, count in intervals[:4]
    )
    lines = [
        Line("info", _("Version"), test["version"] or untold),
        Line("info", _("Retention"), test["retention"] or untold),
        Line("info", _("Scrape interval"), shown or untold),
        _skew(test["skew_s"], test["skew_within_s"]),
    ]
    up, down = test["targets_up"], test["targets_down"]
    if up is not None:
        text = _("{up} up, {down} down").format(up=up, down=down)
        lines.append(Line("warn" if down or not up else "ok", _("Targets"), text))
    return lines


def _skew(skew_s: float | None, within_s: float | None) -> Line:
    if skew_s is None or within_s is None:
        return Line("unknown", _("Clock"), _("not told by this server"))
    about = formatting.stage_time(within_s)
    size = abs(skew_s)
    if size <= max(within_s, 0.05):
        return Line("ok", _("Clock"), _("agrees with ours to within {about}").format(about=about))
    amount = formatting.stage_time(size) if size < 1 else duration(size)
    said = (
        _("{amount} ahead of ours (± {about})")
        if skew_s > 0
        else _("{amount} behind ours (± {about})")
    )
    status = "crit" if size > 15 else "warn" if size > _SKEW_WARN_S else "ok"
    text = said.format(amount=amount, about=about)
    if status != "ok":
        text += " · " + _("ages of figures are wrong by as much; correct the clocks")
    return Line(status, _("Clock"), text)


def _addresses(test: Mapping[str, Any]) -> list[Line]:
    lines = []
    for row in test["addresses"]:
        if row["problem"]:
            said = words.say(words.PROBLEMS, row["problem"], status=row.get("status") or "")
            lines.append(Line("crit", row["url"], said))
        elif row["profile"]:
            lines.append(Line("ok", row["url"], engine(row["profile"])))
        else:
            lines.append(Line("warn", row["url"], str(words.PROBLEMS["no_profile"])))
    return lines


def engine(profile: str) -> str:
    """The engine's name; a profile without one shows its own."""
    return str(words.ENGINES.get(profile, profile))


def coverage_card(name: str, report: CoverageReport, reader: Reader) -> CoverageCard:
    return CoverageCard(
        title=name,
        level=str(words.LEVELS[str(int(report.level))]),
        lines=tuple(_coverage_line(line, reader) for line in report.lines),
    )


def _coverage_line(line: CoverageLine, reader: Reader) -> Line:
    params = line.params
    parts = []
    if "have" in params:
        parts.append(_("{have} of {total}").format(have=params["have"], total=params["total"]))
    if params.get("without"):
        without = join(labels.role(role) for role in params["without"])
        parts.append(_("not on every worker of {roles}").format(roles=without))
    if params.get("age_s") is not None:
        parts.append(_("{age} old").format(age=duration(params["age_s"])))
    text = say(Text(f"coverage.{line.code}"), reader)
    facts, sentences = join(parts), []
    if line.code == "buckets":
        text = f"{'TTFT' if params['signal'] == 'ttft' else 'TPOT'}: {text}"
    shown = {
        "objective": _seconds(params.get("objective_s")),
        "largest": _seconds(params.get("largest_s")),
        "nearest": _seconds(params.get("nearest_s")),
    }
    if line.effect:
        sentences.append(words.say(words.EFFECTS, line.effect, **shown))
    if line.fix:
        sentences.append(words.say(words.FIXES, line.fix))
    return Line(
        status=_STATUS[line.found],
        text=text,
        sub=" · ".join(filter(None, (facts, " ".join(sentences)))),
        place=labels.word(labels.PLACES, line.place) if line.place else "",
        used_by=join(str(words.USED_BY[name]) for name in line.used_by),
        copy=line.fix_text,
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else formatting.latency(value, objective_s=value)


def modes(current: str, environment: str, dry_run: bool | None) -> tuple[ModeOption, ...]:
    """The modes, each with the reason why it cannot be chosen (empty where it can)."""
    options = []
    for code, name in labels.MODES.items():
        reason = ""
        if code == "auto":
            reason = _("Only later: after the deployment has run in mode approve.")
        elif code != "observe" and environment != "demo":
            reason = str(words.ERRORS["mode_needs_second_person"])
        elif code == "approve" and not dry_run:
            reason = str(words.ERRORS["dry_run_first"])
        options.append(
            ModeOption(code, str(name), str(words.MODE_TEXTS[code]), reason, code == current)
        )
    return tuple(options)


def dry_run_line(run: Mapping[str, Any] | None, passed: bool | None, reader: Reader) -> Line | None:
    """The outcome of the last dry run; one of other entries, or an old one, says so."""
    if run is None:
        return None
    at = reader.time(datetime.fromisoformat(run["at"]))
    if passed is None:
        return Line(
            "unknown", _("The dry run of {time} no longer holds. Run it again.").format(time=at)
        )
    said = words.say(
        words.DRY_RUNS, "ok" if run["ok"] else run["code"], workers=run["workers"],
        detail=run["detail"],
    )  # fmt: skip
    return Line("ok" if run["ok"] else "crit", said, at)


def needs() -> tuple[tuple[str, str], ...]:
    """The exact permissions of each adapter, with its name."""
    return tuple((str(words.ADAPTERS[code]), str(said)) for code, said in words.NEEDS.items())


def manifests(namespace: str) -> tuple[tuple[str, str], ...]:
    """What an administrator of the backend applies, by adapter."""
    kubernetes = words.KUBERNETES_MANIFEST.format(namespace=namespace or "default")
    return (
        (str(words.ADAPTERS["router_workers"]), words.SMG_MANIFEST),
        (str(words.ADAPTERS["kubernetes"]), kubernetes),
    )


def bucket_lines(
    ladders: Mapping[str, Sequence[float]], objectives: Mapping[str, float], reader: Reader
) -> tuple[Line, ...]:
    """Objectives that lie off the ladder that they are measured with."""
    found = bucket_coverage(ladders, objectives)
    return tuple(
        _coverage_line(replace(line, fix=""), reader)
        for line in found
        if line.found is not Found.FOUND
    )
