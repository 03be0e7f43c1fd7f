"""Everything stored about one deployment that its read models need, loaded once per request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from apps.accounts.domain.authorize import ObjectScope, Viewer
from apps.commands import selectors as commands
from apps.commands.models import Command
from apps.common.measurement import Measurement, State, freshness, missing
from apps.common.units import Unit
from apps.cost import selectors as cost
from apps.cost.models import PriceBook
from apps.diagnosis import selectors as diagnosis
from apps.diagnosis.models import DiagnosisRecord
from apps.fleet import selectors as fleet
from apps.fleet.domain.defaults import Defaults
from apps.fleet.domain.topology import Topology
from apps.fleet.models import Backend, ChangeState, Deployment
from apps.planning import selectors as planning
from apps.planning.models import Evaluation, Recommendation
from apps.slo import selectors as slo
from apps.slo.domain.objective import Objectives
from apps.telemetry import selectors as telemetry
from apps.telemetry.domain.figures import DeploymentFigures, Usual
from apps.telemetry.models import Source
from apps.telemetry.selectors import BriefFigures

#: States that say by themselves that there is nothing of now.
_ALREADY_OLD = frozenset({State.NO_DATA, State.STALE, State.SOURCE_DOWN, State.CONFLICT})


@dataclass
class Loaded:
    """A deployment seen by one viewer at one time. Properties are read when first used."""

    viewer: Viewer
    deployment: Deployment
    now: datetime

    def preset(self, **known: Any) -> None:
        """Give properties that were read for many deployments at once."""
        for name, value in known.items():
            if not isinstance(getattr(type(self), name), cached_property):
                raise AttributeError(f"{name} is not read once per request")
            self.__dict__[name] = value

    @cached_property
    def scope(self) -> ObjectScope:
        return fleet.object_scope(self.deployment)

    @cached_property
    def defaults(self) -> Defaults:
        return fleet.defaults_for(self.deployment)

    @cached_property
    def topology(self) -> Topology:
        return fleet.topology(self.deployment)

    @cached_property
    def gpus(self) -> Mapping[str, Decimal | None]:
        """GPUs of each pool's wanted workers; None where the unit is unknown."""
        pools = self.topology.pools
        return {role: self.topology.gpus_of(role, pool.wanted) for role, pool in pools.items()}

    @cached_property
    def figures(self) -> DeploymentFigures:
        return telemetry.figures(self.deployment, self.now, self.topology)

    @cached_property
    def brief(self) -> BriefFigures:
        """The few figures that a row of the fleet shows."""
        return telemetry.brief_of(self.figures)

    @cached_property
    def usual(self) -> Usual:
        return telemetry.usual(self.deployment, self.now)

    @cached_property
    def evaluation(self) -> Evaluation | None:
        return planning.latest_evaluation(self.deployment)

    @cached_property
    def diagnosis(self) -> DiagnosisRecord | None:
        return diagnosis.latest(self.deployment)

    @cached_property
    def recommendation(self) -> Recommendation | None:
        return planning.open_recommendation(self.deployment)

    @cached_property
    def active_command(self) -> Command | None:
        return commands.active_for(self.deployment)

    @cached_property
    def proposed(self) -> int:
        """Commands that wait for a decision."""
        return Command.objects.filter(deployment=self.deployment, state="PROPOSED").count()

    @cached_property
    def change(self) -> ChangeState:
        return fleet.change_state(self.deployment.pk)

    @cached_property
    def kill_switch(self) -> str | None:
        return commands.kill_switch_for(self.deployment)

    @cached_property
    def backend(self) -> Backend | None:
        return Backend.objects.filter(pk=self.deployment.pk).first()

    @cached_property
    def sources(self) -> list[Source]:
        return list(
            Source.objects.filter(deployment=self.deployment)
            | Source.objects.filter(cluster=self.deployment.cluster, deployment__isnull=True)
        )

    @cached_property
    def objectives(self) -> Objectives:
        return slo.objectives(self.deployment)

    @cached_property
    def thresholds(self) -> Mapping[str, float]:
        """`ttft` and `tpot` -> threshold in seconds."""
        return {signal.value: facts.threshold_s for signal, facts in self.objectives.items()}

    @property
    def shares(self) -> Mapping[str, float]:
        """`ttft` and `tpot` -> target share."""
        return {signal.value: facts.target_share for signal, facts in self.objectives.items()}

    @cached_property
    def price_book(self) -> PriceBook | None:
        return cost.default_book()

    @cached_property
    def prices(self) -> Mapping[str, Decimal]:
        """Rates per GPU-hour by accelerator; absent = no price."""
        return cost.prices_at(self.now, book=self.price_book) if self.price_book else {}

    @property
    def as_of(self) -> datetime | None:
        return self.brief.at

    @property
    def age_s(self) -> float | None:
        return None if self.as_of is None else (self.now - self.as_of).total_seconds()

    @property
    def is_stale(self) -> bool:
        return self.age_s is None or self.age_s >= (
            self.defaults.fresh_intervals * self.defaults.collect_interval_s
        )

    @property
    def is_source_down(self) -> bool:
        return bool(self.sources) and all(source.state == "down" for source in self.sources)

    def evaluated(self, stored: Any, unit: Unit) -> Measurement:
        """A figure of the latest evaluation, aged to now: old ones say so, none are hidden."""
        if not isinstance(stored, Mapping) or "state" not in stored:
            return missing(unit)
        figure = Measurement.from_json(stored)
        return self.aged(figure)

    def aged(self, figure: Measurement, taken: datetime | None = None) -> Measurement:
        """The same figure with the state that its age (or a dead source) gives it. One that does
        not say when it was observed was `taken` then, or with the latest evaluation."""
        end = self.evaluation.window_end if self.evaluation else None
        at = figure.observed_at or taken or end
        if figure.state in _ALREADY_OLD or at is None:
            return figure
        fresh = freshness(at, self.now, self.defaults.collect_interval_s)
        if fresh is State.OK:
            return figure
        state = State.SOURCE_DOWN if self.is_source_down else State.STALE
        return replace(figure, state=state, observed_at=at)


def unknown(unit: Unit) -> Measurement:
    """A figure nobody has measured."""
    return missing(unit)
