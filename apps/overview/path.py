"""The path of a request: mean times of its stages, never added percentiles."""

from __future__ import annotations

from apps.common.measurement import Measurement, Place, State, worst
from apps.common.units import Unit

from .domain.types import PathView, Phase, Stage, Text
from .loaded import Loaded, unknown


def view(loaded: Loaded) -> PathView:
    """Stages of TTFT by their means. What the parts leave over is the first decode step and
    everything between; a stage that is not measured is shown as not measured, never as 0."""
    figures, usual = loaded.figures, loaded.usual
    total = figures.ttft.mean
    prefill = figures.prefill
    queue = prefill.queue_time_mean if prefill else unknown(Unit.SECONDS)
    compute = prefill.stage_time_mean if prefill else unknown(Unit.SECONDS)
    transfer = _transfer(loaded)
    first = _first_step(total, queue, compute, transfer)
    shares = {
        phase: _share(figure, total)
        for phase, figure in (
            (Phase.QUEUE, queue),
            (Phase.PREFILL, compute),
            (Phase.KV_TRANSFER, transfer),
            (Phase.DECODE, first),
        )
    }
    hot = max(shares, key=lambda phase: shares[phase] or 0.0)
    is_hot = loaded.diagnosis is not None and loaded.diagnosis.cause not in (
        "balanced",
        "not_enough_signal",
    )
    stages = [
        Stage(
            Phase.QUEUE,
            queue,
            shares[Phase.QUEUE],
            usual.queue_time_s,
            is_hot and hot is Phase.QUEUE,
            Text("stage.waiting", {"waiting": int(prefill.waiting.value)})
            if prefill and prefill.waiting.value is not None
            else None,
        )
    ]
    if transfer.value is None:
        stages.append(
            Stage(
                Phase.PREFILL_AND_KV,
                compute,
                shares[Phase.PREFILL],
                usual.prefill_time_s,
                is_hot and hot is Phase.PREFILL,
                Text("stage.not_apart"),
            )
        )
    else:
        stages.append(
            Stage(
                Phase.PREFILL,
                compute,
                shares[Phase.PREFILL],
                usual.prefill_time_s,
                is_hot and hot is Phase.PREFILL,
                Text("stage.input", {"tokens": int(figures.mean_input_tokens.value)})
                if figures.mean_input_tokens.value is not None
                else None,
            )
        )
        stages.append(
            Stage(
                Phase.KV_TRANSFER,
                transfer,
                shares[Phase.KV_TRANSFER],
                usual.kv_transfer_s,
                is_hot and hot is Phase.KV_TRANSFER,
                Text("stage.transferring", {"running": int(prefill.transferring.value)})
                if prefill and prefill.transferring.value is not None
                else None,
            )
        )
    tpot = figures.tpot.mean
    stream = None
    if figures.mean_output_tokens.value is not None and tpot.value is not None:
        stream = Text(
            "stream.tokens",
            {"tokens": int(figures.mean_output_tokens.value), "tpot": tpot.number()},
        )
    stages.append(
        Stage(
            Phase.DECODE,
            first,
            shares[Phase.DECODE],
            None,
            is_hot and hot is Phase.DECODE,
            None,
            stream,
        )
    )
    return PathView(
        total=total,
        usual_total_s=usual.ttft_mean_s,
        requests=float(figures.ttft.mean.sample_count or 0) or None,
        span_s=figures.span_s,
        stages=tuple(stages),
    )


def _transfer(loaded: Loaded) -> Measurement:
    """KV transfer is observed by whoever exports it: SGLang's prefill, vLLM's decode side."""
    for phase in (loaded.figures.prefill, loaded.figures.decode):
        if phase is not None and phase.kv_transfer_mean.value is not None:
            return phase.kv_transfer_mean
    return unknown(Unit.SECONDS)


def _first_step(total: Measurement, *parts: Measurement) -> Measurement:
    """What TTFT holds besides the measured stages, where all of them are known."""
    known = [part for part in parts if part.value is not None]
    if total.value is None or len(known) < len(parts):
        return unknown(Unit.SECONDS)
    rest = total.number() - sum(part.number() for part in known)
    if rest < 0:
        # The stages' requests are not quite those whose first token came: nothing can be said.
        return unknown(Unit.SECONDS)
    state = worst([total.state, *(part.state for part in known)])
    if state is State.NO_DATA:
        return unknown(Unit.SECONDS)
    return Measurement(
        rest,
        Unit.SECONDS,
        state,
        total.observed_at,
        Place.ROUTER,
        "ttft_minus_measured_stages",
    )


def _share(part: Measurement, total: Measurement) -> float | None:
    if part.value is None or total.value is None or total.number() <= 0:
        return None
    return min(1.0, part.number() / total.number())
