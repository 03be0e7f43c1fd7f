"""The schema of engine profiles: which metric of which release answers which canonical signal.

A profile is data (`profiles/*.yaml`); nothing else in Fulcrum spells an engine's metric name. A
signal has rows, tried in order; a row applies to some roles and adds up terms; a term is an
ordered list of spellings over the releases, of which the first that the target exports answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from apps.common.measurement import Place
from apps.common.units import Unit

from .window import Kind, Part, Signal, signals_of

Texts = tuple[str, ...]


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
    label is missing or empty), `without` forbidden ones. `value_labels` reads a gauge from the
    product of label texts (info metrics). Values below `minimum` are dropped (markers such as -1).
    """

    name: str = Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")
    scale: Annotated[float, Field(gt=0)] = 1.0
    labels: Mapping[str, Texts] = {}
    without: Mapping[str, Texts] = {}
    value_labels: Texts = ()
    minimum: float | None = None
    evidence: Evidence
    versions: str = ""
    source: str = Field(min_length=3)

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def key(self) -> str:
        """Identity of what is read: name and filters."""
        parts = [f"{k}={'|'.join(v)}" for k, v in sorted(self.labels.items())]
        parts += [f"{k}!={'|'.join(v)}" for k, v in sorted(self.without.items())]
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
    are summed). `worker_label` splits a router's series by worker. `siblings` are metrics whose
    presence proves that the exporter is there, so that a family created with its first event
    counts 0 before it (research on Prometheus semantics: empty vector).
    """

    roles: Texts = ()
    terms: tuple[Term, ...] = Field(min_length=1)
    aggregate: Literal["sum", "mean", "max"] = "sum"
    worker_label: str = ""
    siblings: Texts = ()
    note: str = ""

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
    `totals` labels that must be empty (per-priority rows beside the total).
    """

    version: Literal[1]
    profile: str
    title: str
    versions: str
    place: Place
    scope: Part
    role_label: RoleLabel | None = None
    collapse: Texts = ()
    totals: Texts = ()
    signals: Mapping[Signal, SignalRows]
    absent: Mapping[Signal, str] = {}

    @model_validator(mode="after")
    def _each_signal_once(self) -> Profile:
        both = set(self.signals) & set(self.absent)
        neither = signals_of(self.scope) ^ (set(self.signals) | set(self.absent))
        if both or neither:
            raise ValueError(
                f"each signal is either mapped or listed absent: {sorted(both | neither)}"
            )
        for signal, rows in self.signals.items():
            for ref in refs_of(rows):
                if rows.kind is Kind.HISTOGRAM and (ref.value_labels or ref.minimum is not None):
                    raise ValueError(f"{signal}: gauge options on a histogram")
        return self

    def rows(self, signal: Signal, role: str) -> tuple[Row, ...]:
        """The rows that apply to a role, in order of preference."""
        found = self.signals.get(signal)
        return tuple(row for row in found.rows if row.applies_to(role)) if found else ()

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
