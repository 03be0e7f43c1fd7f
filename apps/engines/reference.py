"""The reference pages about signals and profiles, made from the profiles themselves."""

from __future__ import annotations

from collections.abc import Iterable

from . import loader
from .meanings import MEANINGS
from .measures import kind_of, unit_of
from .schema import Evidence, Profile, Ref, Row, refs_of
from .window import Signal, signals_of

_PROFILES_HEAD = """# Engine profiles

A profile says which metric of which release answers which signal. This page is generated from the
files in `apps/engines/profiles/`. To add an engine, see `docs/how-to/add-an-engine.md`.

## Keys

| key | meaning |
|---|---|
| `version` | of this format: 1 |
| `profile`, `title` | its name (also the file's), and what people read |
| `aliases` | other names that inventories use |
| `versions` | releases it was checked for: `>=0.12,<0.20`, empty for all |
| `scope` | `router`, `frontend`, `engine`, `device`, `host` or `transfer`: what it describes |
| `place` | where its figures are measured |
| `role_label` | a label in which the engine names its own role; a contradiction is left out |
| `collapse` | rank labels whose series repeat one figure: the largest counts |
| `totals` | labels that must be empty: rows beside their own total |
| `join` | labels by which a device or host is joined to a worker or node, most trusted first |
| `passes_through` | engines whose families this exporter repeats on its own port |
| `signals` | per signal its `kind`, its `unit` and `rows`, tried in order |
| `absent` | per signal that is not mapped the reason |

A **row** has `roles` (empty: all), `terms` that are added (`sign: -1` subtracts, `optional` counts
0 when absent), `aggregate` over the series of one target (`sum`, `mean`, `max`, `count`),
`worker_label` (splits a router's series by worker), `siblings` (metrics that prove that the
exporter is there, so that a family created with its first event counts 0 before it), `fallback`
and `note`.

A **term** is an ordered list `any_of`: the first metric that the target exports answers.

A **metric** has `name` (of a histogram without `_bucket`), `scale` into the signal's unit, `labels`
(allowed values), `without` (forbidden values), `unlike` (a pattern for families of virtual devices;
hardware only), `value_labels` (the number is in these labels), `minimum` (smaller values are
markers and are dropped), `versions`, `source`, `evidence`: `live` (recorded from a real program),
`sample_only` (in a written sample with true names) or `documented` (only in a release's source).

Spellings that pipelines make of a name (colons as underscores, `kserve_` before it, `_total`
appended, doubled or missing, a unit appended) are found without being written here.

## Own profiles

`FULCRUM_PROFILE_FOLDER` names a folder with files of the same form. A file adds a profile, or
replaces the shipped one of its name. A file that cannot be used is left out, the shipped profile
stays, and the log names the file, its line, the key, and what to do.
"""


def signals_page() -> str:
    """docs/reference/signals.md."""
    lines = [
        "# Signals",
        "",
        "The canonical quantities that every engine's metrics are read into. Generated.",
        "Counters are increases over a window, gauges its last value, histograms bucket counts of "
        "one ladder.",
        "Each signal's profiles are those that map it; the others say why not "
        "(`docs/reference/profiles.md`).",
    ]
    for title, wanted in (
        ("Serving", signals_of("engine")),
        ("Devices", signals_of("device")),
        ("Hosts", signals_of("host")),
    ):
        lines += ["", f"## {title}", "", "| signal | kind | unit | meaning | profiles |",
                  "|---|---|---|---|---|"]  # fmt: skip
        for signal in Signal:
            if signal in wanted:
                lines.append(
                    f"| `{signal.value}` | {kind_of(signal).value} | {unit_of(signal).value} "
                    f"| {MEANINGS[signal]} | {', '.join(_mapped_by(signal))} |"
                )
    return "\n".join([*lines, ""])


def profiles_page() -> str:
    """docs/reference/profiles.md."""
    lines = [_PROFILES_HEAD]
    for name in loader.shipped_names():
        lines += _profile(loader.load(name))
    return "\n".join(lines)


def _mapped_by(signal: Signal) -> Iterable[str]:
    return (n for n in loader.shipped_names() if signal in loader.load(n).signals)


def _profile(profile: Profile) -> list[str]:
    facts = [f"`{profile.profile}`", f"versions `{profile.versions}`", f"scope {profile.scope}"]
    if profile.aliases:
        facts.append("also called " + ", ".join(f"`{alias}`" for alias in profile.aliases))
    if profile.role_label:
        facts.append(f"role in `{profile.role_label.name}`")
    if profile.join:
        joined = (f"{key} by {' or '.join(f'`{n}`' for n in v)}" for key, v in profile.join.items())
        facts.append("joined: " + ", ".join(joined))
    lines = [f"## {profile.title}", "", "; ".join(facts) + ".", ""]
    lines += ["| signal | role | metric | versions | evidence |", "|---|---|---|---|---|"]
    for signal in Signal:
        rows = profile.signals.get(signal)
        for row in rows.rows if rows else ():
            lines += [_line(signal, row, ref) for ref in _once(row)]
    unseen = [
        f"`{signal.value}`"
        for signal, rows in profile.signals.items()
        if not any(ref.evidence is Evidence.LIVE for ref in refs_of(rows))
    ]
    if unseen:
        lines += ["", "In no recording of a real program yet: " + ", ".join(unseen) + "."]
    reasons = [f"`{s.value}`: {profile.absent[s]}" for s in Signal if s in profile.absent]
    if reasons:
        lines += ["", "Not mapped: " + "; ".join(reasons) + "."]
    return [*lines, ""]


def _once(row: Row) -> Iterable[Ref]:
    return dict.fromkeys(ref for term in row.terms for ref in term.any_of)


def _line(signal: Signal, row: Row, ref: Ref) -> str:
    scale = f" x {ref.scale:.10g}" if ref.scale != 1 else ""
    # A pipe would end the table's cell.
    key = ref.key.replace("|", " or ")
    roles = ", ".join(row.roles) or "any"
    return (
        f"| `{signal.value}` | {roles} | `{key}`{scale} | {ref.versions or 'all'} "
        f"| {ref.evidence.value} |"
    )
