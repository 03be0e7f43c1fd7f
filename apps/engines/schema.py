"""The schema of engine profiles: which metric of which release answers which canonical signal.

A profile is data (`profiles/*.yaml`); nothing else in Fulcrum spells an engine's metric name. A
signal has rows, tried in order; a row applies to some roles and adds up terms; a term is an
ordered list of spellings over the releases, of which the first that the target exports answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from apps.common.measurement import Place
from apps.common.units import Unit

from .measures import kind_of, unit_of
from .versions import Range, parse
from .window import Kind, Part, Signal, signals_of

Texts = tuple[str, ...]


def _range(text: str) -> str:
    parse(text)
    return text


#: A range of releases, `>=0.12,<0.20`; empty for all.
Versions = Annotated[str, AfterValidator(_range)]


class Evidence(StrEnum):
    """What a name rests on: seen in a live recording, only in a written sample, or only in a
    release's source."""

    LIVE = "live"
    SAMPLE_ONLY = "sample_only"
    DOCUMENTED = "documented"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ref(Strict):
    """One metric of one family. For histograms `name` is the base name without `_bucket`.

    `scale` turns the exporter's unit into the signal's. `labels` lists allowed values ("" = the
    label is missing or empty), `without` forbidden ones, `unlike` a pattern that a whole value must
    not match (families of virtual devices). `value_labels` reads a gauge from the
    product of label texts (info metrics). Values below `minimum` are dropped (markers such as -1).
    """

    name: str = Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")
    scale: Annotated[float, Field(gt=0)] = 1.0
    labels: Mapping[str, Texts] = {}
    without: Mapping[str, Texts] = {}
    value_labels: Texts = ()
    unlike: Mapping[str, str] = {}
    minimum: float | None = None
    evidence: Evidence
    versions: Versions = ""
    source: str = Field(min_length=3)
    note: str = ""

    @field_validator("unlike")
    @classmethod
    def _patterns(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for pattern in value.values():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a pattern: {pattern!r} ({error})") from error
        return value

    def __hash__(self) -> int:
        return hash(self.key)

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether a series of this name passes the filters on its labels."""
        return (
            all(labels.get(name, "") in allowed for name, allowed in self.labels.items())
            and not any(labels.get(name, "") in bad for name, bad in self.without.items())
            and not any(
                re.fullmatch(pattern, labels.get(name, "")) for name, pattern in self.unlike.items()
            )
        )

    @cached_property
    def key(self) -> str:
        """Identity of what is read: name and filters."""
        parts = [f"{k}={'|'.join(v)}" for k, v in sorted(self.labels.items())]
        parts += [f"{k}!={'|'.join(v)}" for k, v in sorted(self.without.items())]
        parts += [f"{k}!~{v}" for k, v in sorted(self.unlike.items())]
        parts += [f"*{name}" for name in self.value_labels]
        return f"{self.name}{{{','.join(parts)}}}" if parts else self.name


class Term(Strict):
    """A summand. An `optional` one that is absent counts 0 when the rest of its row is found."""

    any_of: tuple[Ref, ...] = Field(min_length=1)
    sign: Literal[1, -1] = 1
    optional: bool = False


class Row(Strict):
    """One way to read a signal, for `roles` (empty: every role).

    `aggregate` says how the series of one target come together (ranks: usage is averaged, counts
    are summed; `count` is the number of series, whatever they say). `worker_label` splits a
    router's series by worker. `siblings` are metrics whose presence proves that the exporter is
    there, so that a family created with its first event counts 0 before it (research on Prometheus
    semantics: empty vector). A `fallback` row is tried after those of the engines that the profile
    passes through.
    """

    roles: Texts = ()
    terms: tuple[Term, ...] = Field(min_length=1)
    aggregate: Literal["sum", "mean", "max", "count"] = "sum"
    worker_label: str = ""
    siblings: Texts = ()
    note: str = ""
    fallback: bool = False

    def applies_to(self, role: str) -> bool:
        return not self.roles or role in self.roles


class SignalRows(Strict):
    kind: Kind
    unit: Unit
    rows: tuple[Row, ...] = Field(min_length=1)


class RoleLabel(Strict):
    """A label in which the engine names its own role, and the values that fit each of ours.

    Series that contradict the inventory's role are left out of the pool: a label set that lingers
    after a role switch may not count in the new pool.
    """

    name: str
    values: Mapping[str, Texts]


class Profile(Strict):
    """All signals of one engine or exporter.

    `collapse` names rank labels whose series repeat one quantity (the largest counts once);
    `totals` labels that must be empty (per-priority rows beside the total). `join` names, per
    thing a series can belong to (`pod`, `namespace`, `node`, `uuid`, `gpu`), the labels that may
    say so, the most trusted first: a Prometheus keeps an exporter's own label as `exported_<name>`
    and then the plain one is the exporter's own pod. `aliases` are other names that inventories
    use. `passes_through` names engine profiles whose families this exporter repeats on its own
    port: the loader adds their rows, so that each name stands in one file.
    """

    version: Literal[1]
    profile: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    aliases: Texts = ()
    passes_through: Texts = ()
    title: str
    versions: Versions
    place: Place
    scope: Part
    role_label: RoleLabel | None = None
    collapse: Texts = ()
    totals: Texts = ()
    join: Mapping[str, Texts] = {}
    signals: Mapping[Signal, SignalRows]
    absent: Mapping[Signal, str] = {}

    @model_validator(mode="after")
    def _each_signal_once(self) -> Profile:
        both = set(self.signals) & set(self.absent)
        said = set(self.signals) | set(self.absent)
        known = signals_of(self.scope)
        missing = set() if self.passes_through else known - said
        if both or missing or said - known:
            raise ValueError(
                "each signal of the scope is either mapped or listed absent: "
                f"{sorted(both | missing | (said - known))}"
            )
        for signal, rows in self.signals.items():
            if (rows.kind, rows.unit) != (kind_of(signal), unit_of(signal)):
                raise ValueError(
                    f"{signal} is a {kind_of(signal)} in {unit_of(signal).value!r}, not a "
                    f"{rows.kind} in {rows.unit.value!r}; use `scale` to convert"
                )
            for ref in refs_of(rows):
                if not parse(ref.versions).overlaps(self.range):
                    raise ValueError(
                        f"{signal}: {ref.name} exists in {ref.versions!r} only, outside the "
                        f"profile's {self.versions!r}"
                    )
                if rows.kind is Kind.HISTOGRAM and (ref.value_labels or ref.minimum is not None):
                    raise ValueError(f"{signal}: gauge options on a histogram")
        return self

    @property
    def range(self) -> Range:
        """The releases that this profile was checked for."""
        return parse(self.versions)

    def rows(self, signal: Signal, role: str) -> tuple[Row, ...]:
        """The rows that apply to a role, in order of preference."""
        found = self.signals.get(signal)
        return tuple(row for row in found.rows if row.applies_to(role)) if found else ()

    @cached_property
    def plans(self) -> dict[str, Any]:
        """What `plans.plan_of` worked out, by role."""
        return {}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Profile:
        """A copy with other rows needs other plans."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("plans", None)
        return copied

    def refs(self) -> Iterator[tuple[Kind, Row, Ref]]:
        """Every metric the profile may read."""
        for rows in self.signals.values():
            for row in rows.rows:
                for term in row.terms:
                    for ref in term.any_of:
                        yield rows.kind, row, ref

    def siblings(self) -> frozenset[str]:
        """Metrics that are only looked at for presence."""
        return frozenset(
            name for rows in self.signals.values() for row in rows.rows for name in row.siblings
        )

    def allowed_roles(self, role: str) -> Texts | None:
        """Values of the engine's own role label that fit `role`; None when it has no such label."""
        if self.role_label is None:
            return None
        return self.role_label.values.get(role, ("",))


def refs_of(rows: SignalRows) -> Iterator[Ref]:
    """The metrics of one signal."""
    for row in rows.rows:
        for term in row.terms:
            yield from term.any_of
