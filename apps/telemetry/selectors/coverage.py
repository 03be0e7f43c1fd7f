"""Which signals a deployment's targets give."""

from __future__ import annotations

from dataclasses import dataclass

from apps.engines import loader
from apps.engines.window import Signal
from apps.fleet.models import Deployment

from ..models import TargetScope
from .figures import newest_windows
from .sources import targets_of


@dataclass(frozen=True, slots=True)
class SignalCoverage:
    """Whether a signal that a scope's profile can read was found in its newest window.

    `state`: `found`, `missing` (the profile knows it, the target does not export it), `absent`
    (this engine has none; `reason` says why).
    """

    scope: str
    profile: str
    signal: str
    state: str
    name: str = ""
    reason: str = ""


def coverage(deployment: Deployment) -> tuple[SignalCoverage, ...]:
    """Signals per scope of the deployment's targets, for the coverage page."""
    profiles: dict[str, str] = {}
    for target in targets_of(deployment):
        engine = target.scope == TargetScope.ENGINE
        role = target.worker.role if engine and target.worker else target.scope
        profiles.setdefault(role, target.profile)
    newest = newest_windows(deployment)
    found: list[SignalCoverage] = []
    for scope, name in sorted(profiles.items()):
        profile = loader.load(name)
        windows = newest.get(scope, ())
        for signal in Signal:
            holder = next((w for w in windows if signal in w.values), None)
            if holder is not None:
                state, metric, reason = "found", holder.names.get(signal, ""), ""
            elif profile.rows(signal, scope):
                state, metric, reason = "missing", "", ""
            else:
                reason = profile.absent.get(signal, "not read in this role")
                state, metric = "absent", ""
            found.append(SignalCoverage(scope, name, signal.value, state, metric, reason))
    return tuple(found)
