"""What a target shows beside its signals: labels that name a role, names we do not read. Pure.

A metric that an engine's new release renamed looks like one that was never there. The nearest name
that the target does export is the hint a person needs (faults M7 and M18 of the catalogue).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final

from apps.engines.exposition import parse, spellings
from apps.engines.schema import Profile
from apps.engines.window import Kind, Signal

#: Labels of engines' and routers' own series that name a role.
ROLE_LABELS: Final = ("engine_type", "dynamo_component")
#: Labels of a target that may name a role, after relabelling put what it likes around them.
_POD_LABEL: Final = re.compile(
    r"(llm_d_ai_role|role_name|dynamo_(sub_)?component_type|fulcrum_role|^(exported_)?role)$"
)
#: Likeness (0..1) from which a name is worth showing, and the most names looked at.
MIN_LIKENESS: Final = 0.6
MAX_NAMES: Final = 5000
#: What all names of one exporter start with.
_EXPORTER: Final = re.compile(
    r"^(kserve_)?(vllm_router|vllm|sglang|smg|trtllm|dynamo_(component|frontend)|dcgm_(fi|exp))[:_]"
)
#: Units say nothing about what is measured, and change with a rename.
_UNITS: Final = frozenset({"seconds", "s", "ms", "us", "bytes", "ratio", "perc", "percent"})
_SUFFIXES: Final = ("_bucket", "_sum", "_count", "_total", "_created")


@dataclass(frozen=True, slots=True)
class Observed:
    """`pod_labels`: the target's own labels that may name a role; `metric_labels`: values seen of
    the role labels of its series; `near`: per signal that was not found, the nearest name that the
    target exports; `names`: how many families it exports."""

    pod_labels: Mapping[str, str] = field(default_factory=dict)
    metric_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    near: Mapping[str, str] = field(default_factory=dict)
    names: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "pod_labels": dict(self.pod_labels),
            "metric_labels": {name: list(values) for name, values in self.metric_labels.items()},
            "near": dict(self.near),
            "names": self.names,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Observed:
        """The reverse; an empty or foreign object is an empty observation."""
        labels = data.get("metric_labels") or {}
        return cls(
            pod_labels={str(k): str(v) for k, v in (data.get("pod_labels") or {}).items()},
            metric_labels={str(k): tuple(map(str, v)) for k, v in labels.items()},
            near={str(k): str(v) for k, v in (data.get("near") or {}).items()},
            names=int(data.get("names") or 0),
        )


def from_text(text: str, profile: Profile, role: str) -> Observed:
    """What an exposition shows of a target in a role."""
    series = parse(text).series
    values: dict[str, set[str]] = {}
    for item in series:
        for name, value in item.labels:
            if name in ROLE_LABELS and not _is_about_others(profile):
                values.setdefault(name, set()).add(value)
    return Observed(
        metric_labels={name: tuple(sorted(found)) for name, found in sorted(values.items())},
        near=near(profile, role, {item.name for item in series}),
        names=len(families(item.name for item in series)),
    )


def _is_about_others(profile: Profile) -> bool:
    """Series of routers and frontends carry the roles of the workers they see (a frontend writes
    `dynamo_component="backend"`), never their own."""
    return profile.scope in ("router", "frontend")


def pod_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those labels of a target that may name a role."""
    return {
        name: value
        for name, value in labels.items()
        if _POD_LABEL.search(re.sub(r"[^a-z0-9]", "_", name.lower()))
    }


def families(names: Iterable[str]) -> set[str]:
    """Metric names without the parts of a histogram and without `_total`."""
    return {_family(name) for name in names}


def _family(name: str) -> str:
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return name


def near(profile: Profile, role: str, exported: Collection[str]) -> dict[str, str]:
    """For each signal that the profile reads in this role and none of whose names is exported, the
    nearest exported family that the profile does not read already."""
    known: set[str] = families(profile.siblings())
    missing: dict[Signal, tuple[str, ...]] = {}
    for signal, rows in profile.signals.items():
        applying = [row for row in rows.rows if row.applies_to(role)]
        refs = [ref for row in applying for term in row.terms for ref in term.any_of]
        wanted = {
            spelled
            for ref in refs
            for spelled in spellings(ref.name, is_counter=rows.kind is Kind.COUNTER)
        }
        known |= families(wanted)
        present = wanted | {f"{name}_bucket" for name in wanted}
        if refs and not present & set(exported):
            missing[signal] = tuple(dict.fromkeys(ref.name for ref in refs))
    unread = sorted(families(exported) - known)[:MAX_NAMES]
    found: dict[str, str] = {}
    for signal, names in missing.items():
        hint = max((nearest(name, unread) for name in names), default=(0.0, ""))[1]
        if hint:
            found[signal.value] = hint
    return found


def nearest(wanted: str, exported: Iterable[str]) -> tuple[float, str]:
    """(likeness, name) of the exported name most like the wanted one; (0, "") if none is."""
    target = _family(wanted)
    best = (0.0, "")
    for name in exported:
        if _exporter(name) != _exporter(target):
            continue
        score = _likeness(target, name)
        if score >= MIN_LIKENESS and score > best[0]:
            best = (score, name)
    return best


def _likeness(left: str, right: str) -> float:
    """Weighted mean of shared words and letters, without an exporter's prefix and units."""
    a, b = _words(left), _words(right)
    if not a or not b:
        return 0.0
    common = len(set(a) & set(b)) / len(set(a) | set(b))
    letters = SequenceMatcher(None, "_".join(a), "_".join(b), autojunk=False).ratio()
    return 0.3 * common + 0.7 * letters


def _exporter(name: str) -> str:
    """Whose metric it is: engines behind one port keep their names apart."""
    found = _EXPORTER.match(name.lower())
    return found[2] if found else re.split(r"[_:]", name.lower(), maxsplit=1)[0]


def _words(name: str) -> list[str]:
    plain = _EXPORTER.sub("", name.lower())
    return [word for word in re.split(r"[_\W]+", plain) if word and word not in _UNITS]
