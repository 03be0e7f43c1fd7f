"""`Facts` read from telemetry, objectives, diagnosis and planning."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from apps.accounts.domain.authorize import SYSTEM, Viewer
from apps.common.measurement import Drive, Measurement, State, missing
from apps.common.units import Unit
from apps.diagnosis import selectors as diagnosis
from apps.diagnosis.domain.busy import BusyShares
from apps.fleet import selectors as fleet
from apps.fleet.models import Deployment
from apps.planning import inputs as reading
from apps.planning import selectors as planning
from apps.planning import services as planning_services
from apps.planning.domain.data import required_figures
from apps.planning.domain.model import Pair
from apps.planning.domain.predict import predict
from apps.planning.services import accounting
from apps.planning.services.evaluate import demand_now
from apps.simulation.service_time import MODEL_ONLY
from apps.slo import selectors as slo
from apps.slo.domain.attainment import Goodput, goodput
from apps.telemetry import selectors as telemetry
from apps.telemetry.domain.figures import DeploymentFigures

from ..domain.proof import Load
from ..domain.scoring import Sample
from .facts import RecommendationFacts

_SIGNAL_OF_ROLE: Final = {"prefill": "ttft", "decode": "tpot"}


class RoomFacts:
    """The provider of a running installation."""

    def data_age_s(self, deployment: Deployment, now: datetime) -> float | None:
        """The age of the oldest figure that a plan cannot do without; None if one has none: the
        router's windows may go on while the engines are silent. A figure that a fresh window lacks,
        or that contradicts another, is none."""
        required = required_figures(telemetry.figures(deployment, now)).values()
        none = (State.NO_DATA, State.CONFLICT)
        seen = [None if figure.state in none else figure.observed_at for figure in required]
        known = [at for at in seen if at is not None]
        if not known or len(known) < len(seen):
            return None
        return (now - min(known)).total_seconds()

    def loads(self, deployment: Deployment, now: datetime) -> Mapping[str, Load]:
        """From the newest evaluation; a share that is only modelled, or old, says nothing."""
        last = planning.latest_evaluation(deployment)
        defaults = fleet.defaults_for(deployment)
        oldest = defaults.gone_intervals * defaults.collect_interval_s
        if last is None or (now - last.at).total_seconds() > oldest:
            return {}
        topology = fleet.topology(deployment)
        targets = {s.value: facts.target_share for s, facts in slo.objectives(deployment).items()}
        found = {}
        for role, signal in _SIGNAL_OF_ROLE.items():
            busy, share = _figure(last.busy.get(role)), _share(last.attainment, signal)
            workers, target = topology.serving_count(role), targets.get(signal)
            if busy is None or share is None or target is None or workers < 1:
                continue
            if not busy.may_drive(Drive.REDUCTION) or MODEL_ONLY in busy.method:
                continue
            found[role] = Load(busy.number(), workers, share.number() >= target)
        return found

    def measured(
        self, deployment: Deployment, end: datetime, span_s: float
    ) -> Mapping[str, Measurement]:
        """As the recommendation's own "now" figures are made, over the asked window."""
        figures = telemetry.figures_over(deployment, end, span_s)
        loaded = replace(reading.load(deployment, end), figures=figures, recent=figures)
        good = self._goodput(deployment, figures)
        unknown = missing(Unit.RATIO)
        costs = accounting.costs(loaded, BusyShares(unknown, unknown, unknown, unknown), good)
        return accounting.measured_now(figures, good, costs)

    def sample(self, deployment: Deployment, end: datetime, span_s: float) -> Sample:
        figures = telemetry.figures_over(deployment, end, span_s)
        return Sample(
            at=end,
            ttft_p95=_value(figures.ttft.p95),
            tpot_p95=_value(figures.tpot.p95),
            goodput=_value(self._goodput(deployment, figures).share),
            error_share=_error_share(figures),
        )

    def _goodput(self, deployment: Deployment, figures: DeploymentFigures) -> Goodput:
        attained = accounting.attainments(
            figures, fleet.defaults_for(deployment), slo.objectives(deployment)
        )
        return goodput([one.share for one in attained.values()], figures.completions_per_s)

    def recommendation(self, recommendation_id: UUID) -> RecommendationFacts | None:
        try:
            row = planning.recommendation_by_id(SYSTEM, recommendation_id)
        except fleet.NotVisible:
            return None
        return RecommendationFacts(
            id=row.pk,
            number=row.number,
            deployment_id=row.deployment_id,
            state=row.state,
            targets=dict(row.targets),
            expected_revision=row.expected_revision,
            predicted={key: pair["after"] for key, pair in row.predicted.items()},
            do_nothing=dict(row.do_nothing),
        )

    def recommendation_id(self, viewer: Viewer, number: str) -> UUID:
        try:
            wanted = UUID(number)
        except ValueError:
            return planning.recommendation_by_number(viewer, number).pk
        return planning.recommendation_by_id(viewer, wanted).pk

    def recheck(self, recommendation_id: UUID, now: datetime) -> tuple[str, ...]:
        try:
            row = planning.recommendation_by_id(SYSTEM, recommendation_id)
        except fleet.NotVisible:
            return ("recommendation_gone",)
        return tuple(g.code for g in planning_services.recheck(row, now) if not g.passed)

    def mark_applied(
        self, recommendation_id: UUID, *, actor: Viewer, now: datetime, command_id: UUID
    ) -> bool:
        try:
            planning_services.mark_applied(
                actor=actor, now=now, recommendation_id=recommendation_id, command_id=command_id
            )
        except (planning_services.NotOpen, fleet.NotVisible):
            return False
        return True

    def score(
        self, recommendation_id: UUID, *, now: datetime, measured: Mapping[str, Measurement]
    ) -> None:
        planning_services.score_prediction(
            now=now, recommendation_id=recommendation_id, measured=measured
        )

    def predict(
        self, deployment: Deployment, targets: Mapping[str, int], now: datetime
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The planner's own model for targets that a person set."""
        loaded = reading.load(deployment, now)
        stored = dict(diagnosis.calibrations(deployment))
        current, defaults = loaded.current, loaded.defaults
        if current is None or not {"prefill", "decode"} <= stored.keys():
            return {}, {}
        load = demand_now(loaded, now)
        if load is None:
            return {}, {}
        after = Pair(targets.get("prefill", current.prefill), targets.get("decode", current.decode))
        if min(after.prefill, after.decode) < 1:
            return {}, {}
        found = []
        for pair in (after, current):
            result = predict(
                pair,
                load.as_measured(),
                reading.engine(loaded, stored),
                reading.targets(loaded),
                reading.money(loaded),
                horizon_s=max(defaults.soak_s, 2 * defaults.window_s),
                seed=_seed(deployment, after),
                at=now,
                width_scale=planning.width_scale(deployment),
            )
            found.append({key: figure.to_json() for key, figure in result.figures.items()})
        return found[0], found[1]

    def thresholds(self, deployment: Deployment) -> Mapping[str, float]:
        return {f"{name}_p95": value for name, value in slo.thresholds(deployment).items()}

    def guardrails(self, deployment: Deployment) -> Mapping[str, Any]:
        """The objectives and the backend's own options, by value."""
        objectives = {
            signal.value: [facts.quantile, facts.threshold_s, facts.target_share]
            for signal, facts in slo.objectives(deployment).items()
        }
        return {"objectives": objectives, "backend": dict(deployment.backend.parameters)}

    def appliable(self, deployment: Deployment) -> UUID | None:
        found = planning.open_recommendation(deployment)
        return None if found is None or found.blocked else found.pk


def _figure(data: Mapping[str, Any] | None) -> Measurement | None:
    if not data:
        return None
    figure = Measurement.from_json(data)
    return figure if figure.is_known else None


def _share(attainment: Mapping[str, Any], signal: str) -> Measurement | None:
    row = attainment.get(signal)
    return _figure(row.get("share")) if row else None


def _value(figure: Measurement) -> float | None:
    return figure.number() if figure.is_known else None


def _error_share(figures: DeploymentFigures) -> float | None:
    failed, done = _value(figures.failures_per_s), _value(figures.completions_per_s)
    if failed is None or done is None or failed + done <= 0:
        return None
    return failed / (failed + done)


def _seed(deployment: Deployment, pair: Pair) -> int:
    text = f"{deployment.pk}:{pair.prefill}:{pair.decode}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
