"""What the figures of one evaluation may drive (DESIGN law 1): growth, reduction, the donor of a
flip. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from apps.common.measurement import MAY_DRIVE, Drive, Measurement, State, freshness
from apps.telemetry.domain.figures import DeploymentFigures

ROLES = ("prefill", "decode")
#: Percentiles reach back over a window grown to an hour, so that under no traffic they tell of
#: requests long gone.
_PERCENTILES = frozenset({"ttft_p95", "tpot_p95"})
#: Required figures that tell of one pool only; the others tell of the whole deployment.
_OF_ROLE: Mapping[str, str] = {
    "ttft_p95": "prefill",
    "prefill_waiting": "prefill",
    "tpot_p95": "decode",
    "kv_used": "decode",
}
#: The drives on which a worker may be taken away: `too_few` voids percentiles only, load rules
#: still size; `no_traffic` leaves the idle rule.
_TAKES = frozenset({Drive.REDUCTION, Drive.LOAD_RULE, Drive.IDLE_RULE})


@dataclass(frozen=True, slots=True)
class DataState:
    """What the data may drive. `stale` names required figures that forbid a plan, `incomplete`
    those that forbid any reduction. `donors` are the roles that may give a worker to the other:
    pure reductions need every figure, a donor those of its own pool and of the deployment."""

    age_s: float | None
    stale: tuple[str, ...]
    may_grow: bool
    may_reduce: bool
    donors: frozenset[str] = frozenset()
    incomplete: tuple[str, ...] = ()


def data_state(figures: DeploymentFigures, now: datetime, interval_s: float) -> DataState:
    """Which required figures forbid a plan, and which forbid taking workers away."""
    age = (now - figures.at).total_seconds() if figures.at else None
    required = required_figures(figures)
    stale = tuple(name for name, figure in required.items() if not MAY_DRIVE[figure.state])
    if freshness(figures.at, now, interval_s) is not State.OK:
        stale = ("window", *stale)
    idle = is_idle(figures)
    incomplete = tuple(
        name
        for name, figure in required.items()
        if not (MAY_DRIVE[figure.state] & _TAKES or (idle and name in _PERCENTILES))
    )
    donors = frozenset() if stale else frozenset(_whole(incomplete))
    return DataState(age, stale, not stale, not stale and not incomplete, donors, incomplete)


def is_idle(figures: DeploymentFigures) -> bool:
    """True if the counter of arrivals is there and stands still, and nothing ends either."""
    return figures.arrivals_per_s.state is State.NO_TRAFFIC


def required_figures(figures: DeploymentFigures) -> dict[str, Measurement]:
    """The figures a plan cannot do without."""
    required = {
        "arrivals": figures.arrivals_per_s,
        "input_tokens": figures.mean_input_tokens,
        "output_tokens": figures.mean_output_tokens,
        "ttft_p95": figures.ttft.p95,
        "tpot_p95": figures.tpot.p95,
    }
    if figures.prefill is not None:
        required["prefill_waiting"] = figures.prefill.waiting
    if figures.decode is not None:
        required["kv_used"] = figures.decode.kv_used
    return required


def _whole(incomplete: Iterable[str]) -> list[str]:
    """Roles of which, and of the deployment as a whole, nothing is incomplete."""
    hit = {_OF_ROLE.get(name, "") for name in incomplete}
    return [] if "" in hit else [role for role in ROLES if role not in hit]
