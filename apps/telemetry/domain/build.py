"""From windows to `DeploymentFigures`: places, counting once, states, traces. Pure.

Places in order (DESIGN laws 3 and 4): requests and TTFT at the frontend, else the router, else the
decode (or mixed) engines; TPOT at the frontend, else the decode role; input tokens at the frontend,
else the prefill role; output tokens at the frontend, else the decode role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from apps.common.measurement import Measurement, Place, State, worst
from apps.common.units import Unit
from apps.engines.window import Signal, Window
from apps.fleet.domain.defaults import Defaults
from apps.fleet.domain.topology import Topology

from .figures import DeploymentFigures, PhaseFigures, Quantiles
from .hardware_figures import hardware_figures
from .latency import first_with, quantiles
from .phases import phase, rate
from .states import PLACES, View, age_state, nothing

#: Roles in which a user's request ends, and those in which its prompt is computed.
_ENDING = ("decode", "mixed")
_PROMPT = ("prefill", "mixed")


class _Views:
    """The windows of a deployment at their age."""

    def __init__(
        self,
        windows: Mapping[str, Window],
        now: datetime,
        interval_s: float,
        down: frozenset[str],
        histograms: Mapping[str, tuple[Window, float]],
    ) -> None:
        self._interval_s = interval_s
        self._now = now
        self._down = down
        self._histograms = histograms
        self._views = {
            scope: replace(self._aged(window, interval_s), histograms=self._apart(scope))
            for scope, window in windows.items()
        }

    def of(self, window: Window) -> View:
        """A longer window of a scope's histograms, at the age of the present one."""
        _, interval_s = self._histograms.get(window.scope, (None, self._interval_s))
        return self._aged(window, max(interval_s, self._interval_s))

    def _aged(self, window: Window, interval_s: float) -> View:
        down = window.scope in self._down
        return View(window, age_state(window.end, self._now, interval_s, is_down=down))

    def _apart(self, scope: str) -> View | None:
        found = self._histograms.get(scope)
        return None if found is None else self.of(found[0])

    def get(self, scope: str) -> View | None:
        return self._views.get(scope)

    def present(self, scopes: Sequence[str]) -> list[View]:
        return [self._views[scope] for scope in scopes if scope in self._views]

    def is_down(self, *scopes: str) -> bool:
        return any(scope in self._down for scope in scopes)


def figures_from_windows(
    router: Window | None,
    pools: Mapping[str, Window],
    topology: Topology,
    now: datetime,
    defaults: Defaults,
    *,
    frontend: Window | None = None,
    grown: Mapping[Signal, Window] | None = None,
    fault_changes: Mapping[str, int] | None = None,
    down_scopes: frozenset[str] = frozenset(),
    histograms: Mapping[str, tuple[Window, float]] | None = None,
) -> DeploymentFigures:
    """All figures of a deployment.

    `router`, `frontend` and `pools` hold the newest windows of the span asked for (however old:
    their age becomes the state). `grown` gives TTFT and TPOT a longer window of the same scope
    where the span holds too few requests. `pools` also holds the hardware scopes of roles, and
    `fault_changes` how often a fault code changed in one over the span. `down_scopes` are scopes
    whose source or only target is known to be down. `histograms` gives, by scope, the buckets where
    they are collected more rarely than the rest, and how often that is in seconds; the windows then
    hold none.
    """
    windows = dict(pools)
    for scope, window in (("router", router), ("frontend", frontend)):
        if window is not None:
            windows[scope] = window
    views = _Views(windows, now, defaults.collect_interval_s, down_scopes, histograms or {})
    edges = ("frontend", "router")
    counted = (*edges, *_ENDING)
    has_traffic = _has_traffic(views)
    minimum = defaults.percentile_min_requests

    def latency(signal: Signal, scopes: Sequence[str]) -> Quantiles:
        view = first_with(views.present(scopes), signal)
        wide = (grown or {}).get(signal)
        fits = view is not None and wide is not None and wide.scope == view.window.scope
        return quantiles(
            signal,
            view,
            views.of(wide) if wide is not None and fits else None,
            minimum=minimum,
            has_traffic=has_traffic,
            place=_likely_place(views, scopes),
            is_down=views.is_down(*scopes),
        )

    def requests(signal: Signal, scopes: Sequence[str], *, zero_is_answer: bool) -> Measurement:
        return rate(
            first_with(views.present(scopes), signal),
            signal,
            Unit.REQUESTS_PER_SECOND,
            has_traffic or zero_is_answer,
            views.is_down(*scopes),
        )

    def pool(role: str) -> PhaseFigures | None:
        return phase(
            role,
            views.get(role),
            views.get("router"),
            topology,
            is_down=views.is_down(role),
            has_traffic=has_traffic,
        )

    tpot_signal = _tpot_signal(views)
    shown = [view for view in windows.values() if view.scope in (*edges, *topology.pools)]
    phases = {role: one for role in ("prefill", "decode", "mixed") if (one := pool(role))}
    return DeploymentFigures(
        at=max((window.end for window in shown), default=None),
        span_s=max((window.seconds for window in shown), default=0.0),
        ttft=latency(Signal.TTFT, counted),
        tpot=latency(tpot_signal, ("frontend", *_ENDING, "router")),
        arrivals_per_s=requests(Signal.REQUESTS_ARRIVED, edges, zero_is_answer=False),
        completions_per_s=requests(Signal.REQUESTS_COMPLETED, counted, zero_is_answer=False),
        failures_per_s=requests(Signal.REQUESTS_FAILED, counted, zero_is_answer=True),
        input_tokens_per_s=_tokens(views, Signal.INPUT_TOKENS, _PROMPT, has_traffic),
        output_tokens_per_s=_tokens(views, Signal.OUTPUT_TOKENS, _ENDING, has_traffic),
        cached_tokens_per_s=_tokens(views, Signal.CACHED_TOKENS, _PROMPT, True),
        mean_input_tokens=_per_request(views, Signal.INPUT_TOKENS, _PROMPT, has_traffic),
        mean_output_tokens=_per_request(views, Signal.OUTPUT_TOKENS, _ENDING, has_traffic),
        prefill=phases.get("prefill"),
        decode=phases.get("decode"),
        mixed=phases.get("mixed"),
        hardware={
            role: found
            for role, figures in phases.items()
            if (found := hardware_figures(role, views.get, figures.tokens_per_s, fault_changes))
        },
    )


def latency_scope(windows: Mapping[str, Window], signal: Signal) -> str | None:
    """The scope from which TTFT or TPOT is taken, so that a longer window of it can be read."""
    if signal is Signal.TTFT:
        order: tuple[str, ...] = ("frontend", "router", *_ENDING)
    else:
        order = ("frontend", *_ENDING, "router")
    return next(
        (scope for scope in order if scope in windows and signal in windows[scope].values), None
    )


def _likely_place(views: _Views, scopes: Sequence[str]) -> Place:
    present = views.present(scopes)
    return present[0].place if present else PLACES.get(scopes[0], Place.ENGINE)


def _tpot_signal(views: _Views) -> Signal:
    """Per-request TPOT; the gap between tokens where no place exports it."""
    scopes = ("frontend", *_ENDING, "router")
    if first_with(views.present(scopes), Signal.TPOT) is None and first_with(
        views.present(scopes), Signal.ITL
    ):
        return Signal.ITL
    return Signal.TPOT


def _has_traffic(views: _Views) -> bool:
    """True if requests arrived, or ended, or tokens were made, at any place of the window."""
    for scope, signal in (
        *((scope, Signal.REQUESTS_ARRIVED) for scope in ("frontend", "router")),
        *((scope, Signal.REQUESTS_COMPLETED) for scope in ("frontend", "router", *_ENDING)),
        *((scope, Signal.OUTPUT_TOKENS) for scope in _ENDING),
    ):
        view = views.get(scope)
        if view is not None and (view.rate(signal) or 0.0) > 0:
            return True
    return False


def _tokens(
    views: _Views, signal: Signal, roles: Sequence[str], zero_is_answer: bool
) -> Measurement:
    """Tokens per second at the frontend, else summed over the roles (their requests differ)."""
    frontend = first_with(views.present(("frontend",)), signal)
    if frontend is not None:
        return rate(frontend, signal, Unit.TOKENS_PER_SECOND, zero_is_answer, False)
    parts = [
        rate(view, signal, Unit.TOKENS_PER_SECOND, zero_is_answer, False)
        for view in views.present(roles)
        if view.value(signal) is not None
    ]
    if not parts:
        router = first_with(views.present(("router",)), signal)
        return rate(router, signal, Unit.TOKENS_PER_SECOND, zero_is_answer, views.is_down(*roles))
    return parts[0] if len(parts) == 1 else _sum(parts)


def _sum(parts: Sequence[Measurement]) -> Measurement:
    known = [part for part in parts if part.is_known]
    if not known:
        return parts[0]
    state = worst(part.state for part in parts if part.state is not State.NO_TRAFFIC)
    return replace(
        known[0],
        value=sum(part.number() for part in known) if state is not State.NO_DATA else None,
        state=state,
        observed_at=min((p.observed_at for p in parts if p.observed_at), default=None),
        coverage=(
            sum(part.coverage[0] for part in parts if part.coverage),
            sum(part.coverage[1] for part in parts if part.coverage),
        ),
        method="sum_of_roles",
    )


def _per_request(
    views: _Views, signal: Signal, roles: Sequence[str], has_traffic: bool
) -> Measurement:
    """Mean tokens of a request: tokens by the requests (legs) that ended at the same place."""
    view = first_with(views.present(("frontend", *roles)), signal)
    if view is None:
        return nothing(Unit.TOKENS, Place.ENGINE, signal, is_down=views.is_down(*roles))
    tokens, ended = view.counter(signal), view.counter(Signal.REQUESTS_COMPLETED)
    formula = "increase({name}[{span}]) / requests ended"
    if tokens is None or ended is None:
        return view.figure(None, Unit.TOKENS, signal, formula)
    if ended.increase <= 0:
        state = State.NO_DATA if has_traffic else State.NO_TRAFFIC
        return view.figure(None, Unit.TOKENS, signal, formula, state=state, sample_count=0)
    return view.figure(
        tokens.increase / ended.increase,
        Unit.TOKENS,
        signal,
        formula,
        method="tokens_by_requests",
        sample_count=round(ended.increase),
    )
