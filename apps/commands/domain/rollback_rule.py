"""When a change is taken back by itself (DESIGN §4a, soak and automatic rollback)."""

from __future__ import annotations

from dataclasses import dataclass

from apps.common.measurement import Drive, Measurement, State


@dataclass(frozen=True, slots=True)
class Verdict:
    """`bad_windows` counts bad windows in a row; `roll_back` is True when they are enough."""

    roll_back: bool
    bad_windows: int
    reason: str


def judge(
    *,
    attainment: Measurement | None,
    predicted: Measurement | None,
    do_nothing: Measurement | None,
    bad_before: int,
    windows_needed: int,
) -> Verdict:
    """One window: bad when attainment is below the prediction's lower end **and** below the
    do-nothing forecast. A window that cannot be judged (no data, no prediction) changes nothing:
    it is neither good nor bad.
    """
    if attainment is None or not _usable(attainment):
        return Verdict(False, bad_before, "not_measured")
    if predicted is None or not predicted.is_known:
        return Verdict(False, bad_before, "not_predicted")
    if do_nothing is None or not do_nothing.is_known:
        return Verdict(False, bad_before, "no_forecast")
    lower = float(predicted.lower if predicted.lower is not None else predicted.number())
    value = attainment.number()
    if value < lower and value < do_nothing.number():
        bad = bad_before + 1
        return Verdict(bad >= windows_needed, bad, "worse_than_doing_nothing")
    return Verdict(False, 0, "ok")


def _usable(attainment: Measurement) -> bool:
    if not attainment.is_known:
        return False
    return attainment.may_drive(Drive.REDUCTION) or attainment.state is State.CLAMPED
