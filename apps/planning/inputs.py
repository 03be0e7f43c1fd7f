"""Reads everything one evaluation needs, once: inventory, figures, objectives, prices, history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from apps.backends.errors import BadConnection, UnknownAdapter
from apps.backends.protocol import Capabilities
from apps.common.measurement import State, freshness
from apps.common.secretbox import SecretUnreadable
from apps.cost import selectors as cost
from apps.diagnosis import selectors as diagnosis
from apps.diagnosis import services as diagnosing
from apps.diagnosis.domain.calibration import (
    LENGTH_CV2,
    context_tokens,
    decode_window,
    prefill_window,
)
from apps.diagnosis.selectors import CalibrationFacts
from apps.fleet import connect
from apps.fleet import selectors as fleet
from apps.fleet.domain.defaults import Defaults
from apps.fleet.domain.topology import PoolFacts, Topology
from apps.fleet.models import Backend, ChangeState, Deployment
from apps.simulation.service_time import CALIBRATED, DecodeModel, PrefillModel
from apps.slo import selectors as slo
from apps.slo.domain.objective import Objectives, ObjectiveSignal
from apps.telemetry import selectors as telemetry
from apps.telemetry.domain.figures import DeploymentFigures, Usual

from .domain.choose import REDUCTIONS, Limits
from .domain.confidence import PhaseBasis
from .domain.model import Engine, Money, Pair, Targets
from .models import Recommendation, RecommendationState
from .priors import prior

#: Relative doubt about a model that has no hold-out error yet, and the least of one that has.
PRIOR_ERROR, LEAST_ERROR = 0.25, 0.03
#: Causes under which a window says nothing about a healthy engine.
UNFIT_FOR_CALIBRATION = frozenset(
    {"bad_worker", "kv_transfer_slow", "not_enough_signal", "replica_lost"}
)
PROVISIONS = "provisions"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read for one evaluation of one deployment.

    `figures` span the diagnosis window, `recent` one stored window.
    """

    deployment: Deployment
    defaults: Defaults
    topology: Topology
    figures: DeploymentFigures
    recent: DeploymentFigures
    usual: Usual
    objectives: Objectives
    change: ChangeState
    prices: dict[str, Decimal]
    components: dict[str, Decimal]

    @property
    def current(self) -> Pair | None:
        """Wanted workers of the planned roles (serving ones where nothing was wanted yet); None
        without both pools."""
        counts = {}
        for role in ("prefill", "decode"):
            pool = self.topology.pools.get(role)
            if pool is None:
                return None
            counts[role] = pool.wanted or self.topology.serving_count(role)
        if min(counts.values()) < 1:
            return None
        return Pair(counts["prefill"], counts["decode"])

    def threshold(self, signal: ObjectiveSignal) -> float | None:
        facts = self.objectives.get(signal)
        return facts.threshold_s if facts else None


def load(deployment: Deployment, now: datetime) -> Loaded:
    """Read it all. Figures come from stored windows only."""
    defaults = fleet.defaults_for(deployment)
    figures = telemetry.figures(deployment, now)
    recent = figures
    if defaults.window_s < defaults.diagnosis_window_s:
        recent = telemetry.figures_over(deployment, now, defaults.window_s)
    return Loaded(
        deployment=deployment,
        defaults=defaults,
        topology=fleet.topology(deployment),
        figures=figures,
        recent=recent,
        usual=telemetry.usual(deployment, now),
        objectives=slo.objectives(deployment),
        change=fleet.change_state(deployment.pk),
        prices=cost.prices_at(now),
        components={},
    )


def calibrate(loaded: Loaded, now: datetime) -> dict[str, CalibrationFacts]:
    """Add this window to the calibrations, unless something structural is wrong with it."""
    figures, deployment = loaded.figures, loaded.deployment
    last = diagnosis.latest(deployment)
    healthy = last is None or not UNFIT_FOR_CALIBRATION & {last.cause, last.raw_cause}
    fit = healthy and not loaded.change.active_command_id
    samples = {
        "prefill": prefill_window(figures) if fit else None,
        "decode": decode_window(figures) if fit else None,
    }
    pools = {
        pool.role: pool
        for pool in deployment.pools.select_related("accelerator").filter(role__in=samples)
    }
    found = {}
    for phase, sample in samples.items():
        start = prior(deployment, pools.get(phase), phase)
        found[phase] = diagnosing.update_calibration(
            now=now,
            deployment=deployment,
            phase=phase,
            prior=start.coefficients,
            prior_source=start.source,
            sample=sample,
            window_end=figures.at,
        )
    return found


def engine(loaded: Loaded, calibrations: dict[str, CalibrationFacts]) -> Engine:
    """Learnt service times and the limits of one worker of each role."""
    prefill, decode = calibrations["prefill"], calibrations["decode"]
    return Engine(
        prefill=PrefillModel(*prefill.coefficients),
        decode=DecodeModel(*decode.coefficients),
        prefill_error=_error(prefill),
        decode_error=_error(decode),
        prefill_basis=prefill.basis,
        decode_basis=decode.basis,
        length_cv2=LENGTH_CV2,
        transfer_s=_transfer_s(loaded),
        max_sequences=_max_sequences(loaded),
        kv_capacity_tokens=_kv_capacity(loaded),
    )


def targets(loaded: Loaded) -> Targets:
    """The objectives as the planner reads them."""
    ttft = loaded.objectives.get(ObjectiveSignal.TTFT)
    tpot = loaded.objectives.get(ObjectiveSignal.TPOT)
    return Targets(
        ttft_s=ttft.threshold_s if ttft else None,
        ttft_quantile=ttft.quantile if ttft else 0.95,
        tpot_s=tpot.threshold_s if tpot else None,
        tpot_quantile=tpot.quantile if tpot else 0.95,
    )


def money(loaded: Loaded) -> Money:
    """USD per worker-hour of each planned role; None where the GPUs or their price are unknown."""
    rates = {role: worker_price(loaded, role) for role in ("prefill", "decode")}
    other = sum(loaded.components.values(), Decimal(0))
    return Money(rates["prefill"], rates["decode"], other)


def worker_price(loaded: Loaded, role: str) -> Decimal | None:
    """GPUs of one worker x their price."""
    pool = loaded.topology.pools.get(role)
    if pool is None or pool.devices_per_worker is None or pool.accelerator is None:
        return None
    price = loaded.prices.get(pool.accelerator)
    return None if price is None else price * pool.devices_per_worker


def limits(loaded: Loaded, current: Pair, now: datetime) -> Limits:
    """Floors, ceilings, steps, GPUs and moves of this deployment."""
    defaults, pools = loaded.defaults, loaded.topology.pools
    prefill, decode = pools["prefill"], pools["decode"]
    flip, scale = moves(loaded.deployment)
    floor = defaults.floor_workers_per_role
    return Limits(
        min_prefill=max(floor, prefill.min_workers),
        min_decode=max(floor, decode.min_workers),
        max_prefill=prefill.max_workers,
        max_decode=decode.max_workers,
        gpus_prefill=prefill.devices_per_worker,
        gpus_decode=decode.devices_per_worker,
        gpu_budget=_gpu_budget(loaded, prefill, decode, current, now),
        can_flip=flip and prefill.accelerator == decode.accelerator,
        can_scale=scale,
        step_up_workers=defaults.step_up_workers,
        step_up_share=defaults.step_up_share,
        step_down_workers=defaults.step_down_workers,
        step_down_share=defaults.step_down_share,
    )


def moves(deployment: Deployment) -> tuple[bool, bool]:
    """(workers can change role, workers can be started and stopped) through this backend.

    A backend that Fulcrum may only read gets advice that a person carries out: moving workers. A
    router can take workers in and out but buys and frees no GPU, so scaling needs a backend that is
    declared to provision.
    """
    try:
        backend = deployment.backend
        found: Capabilities = connect.adapter_for(deployment).capabilities()
    except (Backend.DoesNotExist, UnknownAdapter, BadConnection, SecretUnreadable):
        return True, False
    provisions = str(backend.parameters.get(PROVISIONS, "")).lower() in ("1", "true", "yes")
    return found.role_flip or not found.can_write, provisions and found.add and found.remove


def standing_pair(loaded: Loaded, current: Pair) -> Pair | None:
    """The counts before the last growth that was applied, while they still stand as it left them.

    When the load that asked for it has gone, the fleet may go back (reason `load_returned`).
    """
    last = (
        Recommendation.objects.filter(
            deployment=loaded.deployment, state=RecommendationState.APPLIED
        )
        .order_by("-sequence")
        .first()
    )
    if last is None or last.reason in REDUCTIONS:
        return None
    if last.kind != "rebalance" or last.targets != current.as_dict():
        return None
    return Pair(int(last.current["prefill"]), int(last.current["decode"]))


def bases(
    loaded: Loaded, calibrations: dict[str, CalibrationFacts]
) -> tuple[tuple[PhaseBasis, PhaseBasis], tuple[str, ...]]:
    """What each phase's model rests on, and the phases whose capacity is not calibrated."""
    prompt = loaded.figures.mean_input_tokens
    decode = loaded.figures.decode
    batch = 0.0
    if decode is not None and decode.running.value is not None and decode.workers_serving:
        batch = decode.running.number() / decode.workers_serving
    at = {"prefill": prompt.number() if prompt.value is not None else 0.0, "decode": batch}
    found = {
        phase: PhaseBasis(phase, row.samples, row.error, row.covered, at[phase], row.basis)
        for phase, row in calibrations.items()
    }
    uncalibrated = tuple(phase for phase, row in found.items() if row.basis != CALIBRATED)
    return (found["prefill"], found["decode"]), uncalibrated


def mean_context(loaded: Loaded) -> float | None:
    """KV tokens a running sequence holds on average, None when lengths are unknown."""
    prompt, answer = loaded.figures.mean_input_tokens, loaded.figures.mean_output_tokens
    if not prompt.value or not answer.value:
        return None
    return context_tokens(prompt.number(), answer.number())


def inventory_is_fresh(loaded: Loaded, now: datetime) -> bool:
    """True if the backend was read completely less than two of its intervals ago."""
    backend = Backend.objects.filter(pk=loaded.deployment.pk).first()
    if backend is None:
        return False
    return freshness(backend.last_ok_at, now, backend.observe_interval_s) is State.OK


def hold_start(loaded: Loaded, now: datetime) -> datetime:
    """Since when spare capacity must have lasted."""
    return now - timedelta(seconds=loaded.defaults.scale_down_hold_s)


def _error(facts: CalibrationFacts) -> float:
    if facts.error is None or not facts.is_calibrated:
        return PRIOR_ERROR
    return max(LEAST_ERROR, facts.error)


def _transfer_s(loaded: Loaded) -> float:
    for phase in (loaded.figures.prefill, loaded.figures.decode):
        if phase is not None and phase.kv_transfer_mean.state is State.OK:
            return phase.kv_transfer_mean.number()
    return loaded.usual.kv_transfer_s or 0.0


def _max_sequences(loaded: Loaded) -> int | None:
    decode = loaded.figures.decode
    if decode is not None and decode.max_running.value and decode.workers_serving:
        return int(decode.max_running.number() / max(1, decode.workers_serving))
    pool = loaded.topology.pools.get("decode")
    return pool.max_sequences if pool else None


def _kv_capacity(loaded: Loaded) -> float | None:
    decode = loaded.figures.decode
    if decode is not None and decode.kv_capacity_tokens.value and decode.workers_serving:
        reporting = decode.workers_reporting or decode.workers_serving
        return decode.kv_capacity_tokens.number() / reporting
    pool = loaded.topology.pools.get("decode")
    return pool.kv_capacity_tokens if pool else None


def _gpu_budget(
    loaded: Loaded, prefill: PoolFacts, decode: PoolFacts, current: Pair, now: datetime
) -> Decimal | None:
    """GPUs this deployment may hold: its own and the free ones. None = only its own (law 6)."""
    if prefill.devices_per_worker is None or decode.devices_per_worker is None:
        return None
    provisioned = fleet.gpus_provisioned(loaded.topology.cluster_id, now)
    used = fleet.gpus_in_use(loaded.topology.cluster_id)
    if provisioned is None or used is None:
        return None
    own = prefill.devices_per_worker * current.prefill + decode.devices_per_worker * current.decode
    return own + max(Decimal(0), provisioned - used)
