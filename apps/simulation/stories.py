"""The scenarios of the demo fleet: layout, load by phase, and faults on a time table.

Rates are requests/s, lengths mean tokens, times seconds. The numbers were chosen by measurement:
the story's long phase is about 1.03 of the capacity of two prefill workers and 0.69 of three. In
20 seeds that took TTFT P95 above 2.5 s within 30 s, to 4-13 s after 90 s, and back with three.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from apps.simulation.trace import Phase

CALM = "calm"
LONG_PROMPTS = "long-prompts"
LONG_ANSWERS = "long-answers"
LONG_PHASE_S = 390.0
CYCLE_S = 720.0
MIN_CALM_S = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the time table: `at_s` after the load starts, on the worker called `worker`."""

    at_s: float
    worker: str
    kind: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the SGLang deployment of the demo looks like and goes through.

    `kv_room_tokens` and `max_running` replace the profile's when set.
    """

    name: str
    prefill: int
    decode: int
    phases: tuple[Phase, ...]
    faults: tuple[Fault, ...] = ()
    kv_room_tokens: int | None = None
    max_running: int | None = None

    def scaled(self, rate: float) -> Scenario:
        """The same scenario with every rate multiplied by `rate`."""
        return replace(self, phases=scaled(self.phases, rate))


def scaled(phases: tuple[Phase, ...], rate: float) -> tuple[Phase, ...]:
    """Phases with every rate multiplied by `rate`."""
    return tuple(replace(phase, rate=phase.rate * rate) for phase in phases)


def _calm(seconds: float, rate: float = 5.5, input_mean: float = 1150) -> Phase:
    return Phase(CALM, seconds, rate, input_mean, 200)


def _story(shift_s: float) -> Scenario:
    rest = max(MIN_CALM_S, CYCLE_S - shift_s - LONG_PHASE_S)
    phases = (
        _calm(shift_s),
        Phase(LONG_PROMPTS, LONG_PHASE_S, 7.5, 2850, 200),
        _calm(rest),
    )
    return Scenario("story", 2, 4, phases)


def _decode(shift_s: float) -> Scenario:
    rest = max(MIN_CALM_S, CYCLE_S - shift_s - LONG_PHASE_S)
    phases = (
        _calm(shift_s, 6.0, 1000),
        Phase(LONG_ANSWERS, LONG_PHASE_S, 10.0, 600, 600, output_cap=1200),
        _calm(rest, 6.0, 1000),
    )
    return Scenario("decode", 3, 3, phases)


def _faulty(name: str, rate: float, input_mean: float, *faults: Fault) -> Scenario:
    return Scenario(name, 2, 4, (_calm(CYCLE_S, rate, input_mean),), faults)


def scenario(name: str, shift_s: float) -> Scenario:
    """The scenario called `name`; what it shows begins `shift_s` after the load starts.

    `story`: prompts grow, prefill becomes the limit. `decode`: answers grow, decode does.
    `steady`: calm for ever. `kv_room`: as `decode` with little KV room, so TTFT rises instead.
    `slow_worker`, `slow_link`, `dead_worker`, `no_metrics`: calm load and one fault.
    ValueError for an unknown name.
    """
    if name == "story":
        return _story(shift_s)
    if name == "decode":
        return _decode(shift_s)
    if name == "kv_room":
        return replace(_decode(shift_s), name=name, kv_room_tokens=60_000, max_running=48)
    if name == "steady":
        return Scenario(name, 2, 4, (_calm(CYCLE_S),))
    if name == "slow_worker":
        return _faulty(name, 6.0, 1800, Fault(shift_s, "p-1", "slow_worker", 4.0))
    if name == "slow_link":
        links = (Fault(shift_s, worker, "slow_link", 1.3e9) for worker in ("p-0", "p-1"))
        return _faulty(name, 6.0, 1500, *links)
    if name == "dead_worker":
        dead = Fault(shift_s, "d-1", "dead_worker")
        return _faulty(name, 6.0, 1150, dead, Fault(shift_s + 120.0, "d-1", "normal"))
    if name == "no_metrics":
        return _faulty(name, 5.5, 1150, Fault(shift_s, "d-1", "no_metrics"))
    raise ValueError(f"unknown scenario {name!r}; known: {', '.join(SCENARIOS)}")


SCENARIOS = (
    "story",
    "decode",
    "steady",
    "kv_room",
    "slow_worker",
    "slow_link",
    "dead_worker",
    "no_metrics",
)

# The second deployment: balanced and light, the same in every scenario.
SEARCH_PREFILL, SEARCH_DECODE = 2, 2
SEARCH_PHASES = (Phase("steady", CYCLE_S, 3.0, 2000, 220),)
