"""Coverage of a deployment in codes that the console words: what is missing, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from apps.accounts.domain.authorize import Viewer
from apps.common.measurement import Measurement, State
from apps.common.units import Unit
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment
from apps.telemetry import coverage as telemetry
from apps.telemetry.domain.coverage import CoverageLine, CoverageReport, Found, Level
from apps.telemetry.domain.coverage_signals import line_of

from .domain.coverage import CoverageLineView, CoverageView
from .domain.types import Banner, Status, Text
from .loaded import Loaded

#: How bad a line is. What an engine does not have is no defect.
_STATUS: Final[Mapping[Found, Status]] = {
    Found.FOUND: Status.OK,
    Found.PART: Status.WARN,
    Found.CONFLICT: Status.CRIT,
    Found.MISSING: Status.CRIT,
    Found.UNAVAILABLE: Status.UNKNOWN,
}
#: Findings that a banner tells, in this order; the others are on the coverage page only.
_TOLD: Final = (
    "decode_prefills",
    "prefill_decodes",
    "label_contradicts",
    "behaviour_contradicts",
)


def page(viewer: Viewer, slug: str, now: datetime) -> CoverageView:
    """The coverage of a deployment that the viewer may see. Raises NotVisible."""
    loaded = Loaded(viewer, fleet.deployment_by_slug(viewer, slug), now)
    return view(loaded.deployment.slug, look(loaded).report)


def look(loaded: Loaded) -> telemetry.Look:
    """The report with the deployment's objectives, and the signals under it."""
    return telemetry.look(loaded.deployment, loaded.now, loaded.thresholds, loaded.topology)


def view(slug: str, report: CoverageReport) -> CoverageView:
    """A report in codes and parameters of sentences."""
    lines = tuple(line_view(line) for line in report.lines)
    return CoverageView(slug, int(report.level), int(Level.ACT), lines)


def line_view(line: CoverageLine) -> CoverageLineView:
    """One line in codes and parameters of sentences."""
    params = _params(line.params)
    return CoverageLineView(
        code=line.code,
        level=int(line.level),
        found=line.found.value,
        status=_STATUS[line.found],
        title=_title(line.code, params),
        detail=_detail(line, params),
        place=line.place,
        used_by=line.used_by,
        effect=_effect(line.effect, params) if line.effect else None,
        fix=Text(f"fix.{line.fix}", params) if line.fix else None,
        fix_text=line.fix_text,
    )


def _title(code: str, params: Mapping[str, Any]) -> Text:
    kind, _, what = code.partition(".")
    return (
        Text(f"finding.{what}", params) if kind == "finding" else Text(f"coverage.{code}", params)
    )


def _effect(effect: str, params: Mapping[str, Any]) -> Text:
    """The sentence of an effect: `what.missing`, `what.part`, `role.what`, or one of its own."""
    first, _, last = effect.partition(".")
    if last == "missing":
        return Text(f"effect_missing.{first}", params)
    if last == "part":
        return Text(f"effect_part.{first}", params)
    if first == "role":
        return Text(f"effect_role.{last}", params)
    return Text(f"effect.{effect}", params)


def _detail(line: CoverageLine, params: Mapping[str, Any]) -> Text | None:
    """What was found, in numbers."""
    kind, _, what = line.code.partition(".")
    if kind == "finding":
        return Text(f"found.{what}", params)
    if line.code == "buckets":
        if line.found is Found.FOUND:
            return Text("found.buckets_at", params)
        beyond = line.found is Found.CONFLICT
        return Text("found.buckets_beyond" if beyond else "found.buckets_between", params)
    if "metric" in params and line.found is Found.MISSING:
        return Text("found.near", params)
    if line.found is Found.UNAVAILABLE and line.code != "commands":
        return Text("found.unavailable")
    if "roles" in params and line.found is Found.PART:
        return Text("found.part_of_roles", params)
    if "age_s" in params:
        return Text("found.signal", params)
    if line.code == "commands":
        return Text("found.commands", params) if "name" in params else None
    if "have" in params:
        return Text("found.counted", params)
    return Text("found.nothing") if line.found is Found.MISSING else None


_SECONDS: Final = {
    "objective_s": "threshold", "largest_s": "value", "below_s": "first", "above_s": "second",
    "ttft_s": "first", "e2e_s": "second",
}  # fmt: skip
_COUNTS: Final = {
    "have": "have", "expected": "of", "count": "count", "windows": "steps", "accepted": "total",
    "ended": "inside", "in_flight": "running", "seen": "before", "made": "after",
    "cached": "before", "prompt": "after", "tokens": "tokens",
}  # fmt: skip
_SAME: Final = ("age_s", "since", "worker", "role", "roles", "signal")


def _params(given: Mapping[str, Any]) -> dict[str, Any]:
    """A line's parameters under the names and types that sentences use."""
    found: dict[str, Any] = {name: given[name] for name in _SAME if given.get(name)}
    for name, shown in _SECONDS.items():
        if given.get(name) is not None:
            found[shown] = Measurement(float(given[name]), Unit.SECONDS, State.OK)
    for name, shown in _COUNTS.items():
        if isinstance(given.get(name), int | float):
            found[shown] = round(given[name])
    if isinstance(given.get("value"), int | float):
        found["value"] = Measurement(float(given["value"]), Unit.COUNT, State.OK)
    if isinstance(given.get("computed_share"), int | float):
        found["share"] = float(given["computed_share"])
    if given.get("implied") is not None:
        found["needed"] = round(float(given["implied"]))
    for name, shown in (("adapter", "name"), ("near", "metric"), ("label", "name")):
        if given.get(name):
            found[shown] = str(given[name])
    if given.get("says"):
        found["other_role"] = str(given["says"])
    if given.get("without"):
        found["without_roles"] = tuple(given["without"])
    return found


def signal_rows(viewer: Viewer, deployment: Deployment, now: datetime) -> list[dict[str, Any]]:
    """Each signal of each scope, with the level that the deployment reaches and, where it is not
    found, the effect and the fix of the coverage line that it belongs to."""
    looked = look(Loaded(viewer, deployment, now))
    lines = {line.code: line for line in looked.report.lines}
    rows = []
    for item in looked.signals:
        line = lines.get(line_of(item.signal)) if item.state != "found" else None
        is_open = line is not None and line.found is not Found.FOUND
        rows.append(
            {
                "deployment": deployment.slug,
                **asdict(item),
                "level": int(looked.report.level),
                "effect": line.effect if line is not None and is_open else "",
                "fix": line.fix if line is not None and is_open else "",
                "fix_text": line.fix_text if line is not None and is_open else "",
            }
        )
    return rows


def banners(loaded: Loaded, report: CoverageReport) -> Iterator[Banner]:
    """Answers that may be wrong, what contradicts a role for long, and figures that cannot be
    true: one banner each."""
    stale = [line for line in report.lines if line.code == "finding.stale_kv_served"]
    if stale:
        worst = max(stale, key=lambda line: float(line.params.get("count", 0)))
        yield Banner(Status.CRIT, Text("found.stale_kv_served", _params(worst.params)))
    lines = {line.code: line for line in report.lines if line.found is Found.CONFLICT}
    for code in _TOLD:
        line = lines.pop(f"finding.{code}", None)
        if line is not None:
            yield Banner(Status.WARN, Text(f"found.{code}", _params(line.params)))
            return
    doubted = [line for line in report.lines if line.effect == "finding.voids"]
    if doubted and not loaded.is_stale:
        signals = tuple(dict.fromkeys(str(line.params["signal"]) for line in doubted))
        yield Banner(Status.WARN, Text("banner.not_credible", {"signals": signals}))
