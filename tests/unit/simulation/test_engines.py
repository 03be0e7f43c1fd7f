"""The two engine kinds on a virtual clock: protocol, refusals, role switch, exported series."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from apps.simulation.demo.engine import Engine, WorkerPlan
from apps.simulation.demo.exposition import render
from apps.simulation.demo.sglang import SglangEngine
from apps.simulation.demo.sglang_legs import Rendezvous
from apps.simulation.demo.vllm import Directory, VllmEngine
from apps.simulation.service_time import load_profile
from tests.unit.simulation.support import Wire, chat_body, get, post
from tests.unit.simulation.virtual import VirtualLoop

PROFILE = load_profile()
KEY = "engine-key"
CHAT = "/v1/chat/completions"


def sglang_pair(loop: VirtualLoop) -> tuple[SglangEngine, SglangEngine]:
    meeting = Rendezvous()
    return (
        SglangEngine(WorkerPlan("p-0", "prefill", 1, 2, "ip"), PROFILE, KEY, loop, meeting),
        SglangEngine(WorkerPlan("d-0", "decode", 3, 4, "id"), PROFILE, KEY, loop, meeting),
    )


def vllm_pair(loop: VirtualLoop) -> tuple[VllmEngine, VllmEngine]:
    directory = Directory()
    return (
        VllmEngine(WorkerPlan("p-0", "prefill", 1, None, "ip"), PROFILE, KEY, loop, directory),
        VllmEngine(WorkerPlan("d-0", "decode", 3, None, "id"), PROFILE, KEY, loop, directory),
    )


def series(engine: Engine) -> dict[str, float]:
    """Sample values by `name{engine_type}`, the other labels left out; sums over them."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(render(engine.registries())):
        for sample in family.samples:
            role = sample.labels.get("engine_type")
            name = f"{sample.name}{{{role}}}" if role else sample.name
            found[name] = found.get(name, 0.0) + sample.value
    return found


def both_legs(
    prefill: SglangEngine, decode: SglangEngine, tokens_in: int, tokens_out: int, room: int
) -> tuple[Wire, Wire]:
    body = chat_body(
        tokens_in, tokens_out, bootstrap_host="h", bootstrap_port=2, bootstrap_room=room
    )
    return post(prefill, CHAT, body)[0], post(decode, CHAT, body)[0]


def test_sglang_request_takes_prefill_plus_transfer_plus_decode(loop: VirtualLoop) -> None:
    prefill, decode = sglang_pair(loop)
    p_wire, d_wire = both_legs(prefill, decode, 2000, 50, room=7)
    assert prefill.counts() == {"running": 1, "queued": 0, "transferring": 0}
    assert decode.counts() == {"running": 0, "queued": 0, "transferring": 1}
    loop.run_until(5)
    assert (p_wire.status, d_wire.status) == (200, 200)
    compute = PROFILE.prefill.seconds([(0, 2000)])
    transfer = 0.005 + 2000 * 262_144 / 25e9
    assert d_wire.times[0] == pytest.approx(compute + transfer)
    assert p_wire.times[0] == pytest.approx(compute + transfer)
    assert '"completion_tokens": 50' in d_wire.body
    assert d_wire.body.count("tok ") == 50
    assert d_wire.data.endswith(b"0\r\n\r\n")
    assert prefill.idle and decode.idle
    p, d = series(prefill), series(decode)
    assert p["sglang:prompt_tokens_total{prefill}"] == 2000
    assert p["sglang:generation_tokens_total{prefill}"] == 1
    assert d["sglang:generation_tokens_total{decode}"] == 50
    assert d["sglang:realtime_tokens_total{decode}"] == 50
    assert d["sglang:time_to_first_token_seconds_count{decode}"] == 1
    assert d["sglang:inter_token_latency_seconds_count{decode}"] == 49
    assert p["sglang:forward_execution_seconds_total{prefill}"] == pytest.approx(compute)
    for name in ("time_to_first_token", "inter_token_latency", "request_time_per_output_token"):
        assert not any(name in key for key in p)  # absent on a prefill worker, not zero
    assert not any("kv_transfer_latency" in key for key in d)


def test_sglang_prefill_waits_for_room_at_the_decode_worker(loop: VirtualLoop) -> None:
    prefill, decode = sglang_pair(loop)
    body = chat_body(100, 5, bootstrap_host="h", bootstrap_port=2, bootstrap_room=1)
    wire, _ = post(prefill, CHAT, body)
    loop.run_until(3)
    assert prefill.queue_lengths()["num_prefill_bootstrap_queue_reqs"] == 1
    assert wire.status == 0
    post(decode, CHAT, body)
    loop.run_until(6)
    assert wire.status == 200


def test_sglang_lonely_prefill_leg_ends_with_an_error(loop: VirtualLoop) -> None:
    prefill, _ = sglang_pair(loop)
    body = chat_body(100, 5, bootstrap_host="h", bootstrap_port=2, bootstrap_room=1)
    wire, _ = post(prefill, CHAT, body)
    loop.run_until(PROFILE.bootstrap_timeout_s + 1)
    assert wire.status == 500
    assert prefill.idle
    assert series(prefill)["sglang:num_bootstrap_failed_reqs_total{prefill}"] == 1


def test_sglang_refuses_work_of_the_other_role(loop: VirtualLoop) -> None:
    prefill, decode = sglang_pair(loop)
    other = chat_body(10, 5, bootstrap_host="h", bootstrap_port=99, bootstrap_room=1)
    assert post(prefill, CHAT, other)[0].status == 409  # decode work at a prefill worker
    own = {**other, "bootstrap_port": 4}
    assert post(decode, CHAT, own)[0].status == 409  # prefill work at a decode worker
    assert prefill.idle and decode.idle


def test_sglang_client_that_leaves_frees_both_legs(loop: VirtualLoop) -> None:
    prefill, decode = sglang_pair(loop)
    body = chat_body(4000, 500, bootstrap_host="h", bootstrap_port=2, bootstrap_room=1)
    p_wire, _ = post(prefill, CHAT, body)
    _, d_reply = post(decode, CHAT, body)
    loop.run_until(0.1)
    d_reply.abort()
    assert p_wire.status == 500
    loop.run_until(5)
    assert prefill.idle and decode.idle
    assert decode.decode.reserved == 0
    assert series(decode)["sglang:num_aborted_requests_total{decode}"] == 1


def test_switch_needs_the_key_and_an_idle_engine(loop: VirtualLoop) -> None:
    prefill, decode = sglang_pair(loop)
    assert post(decode, "/pd_role_switch", {"new_role": "prefill"})[0].status == 401
    assert post(decode, "/pd_role_switch", {"new_role": "mixed"}, KEY)[0].status == 400
    both_legs(prefill, decode, 1000, 400, room=1)
    loop.run_until(0.5)
    wire, _ = post(decode, "/pd_role_switch", {"new_role": "prefill"}, KEY)
    answer = json.loads(wire.body)
    assert (wire.status, answer["success"], answer["role"]) == (409, False, "decode")
    assert "1 running" in answer["message"]
    assert decode.status == "ready"


def test_switch_may_wait_for_the_last_request_and_takes_no_new_one(loop: VirtualLoop) -> None:
    prefill, decode = sglang_pair(loop)
    _, d_wire = both_legs(prefill, decode, 1000, 100, room=1)
    loop.run_until(0.5)
    body = {"new_role": "prefill", "drain_timeout_s": 30}
    wire, _ = post(decode, "/pd_role_switch", body, KEY)
    late = chat_body(10, 5, bootstrap_host="h", bootstrap_port=2, bootstrap_room=9)
    assert post(decode, CHAT, late)[0].status == 503
    loop.run_until(5)
    assert d_wire.body.count("tok ") == 100
    assert (wire.status, decode.role) == (200, "prefill")


def test_switch_restarts_counters_and_keeps_the_old_ones_for_a_scrape(loop: VirtualLoop) -> None:
    prefill, decode = sglang_pair(loop)
    both_legs(prefill, decode, 1000, 100, room=1)
    loop.run_until(5)
    assert post(decode, "/pd_role_switch", {"new_role": "prefill"}, KEY)[0].status == 200
    assert get(decode, "/health").status == 503
    loop.run_until(6)
    found = series(decode)
    assert found["sglang:generation_tokens_total{decode}"] == 100
    assert found["sglang:generation_tokens_total{prefill}"] == 0
    assert "sglang:num_running_reqs{decode}" not in found
    loop.run_until(5 + PROFILE.warmup_s + 0.1)
    assert get(decode, "/health").status == 200
    info = json.loads(get(decode, "/server_info").body)
    assert info["disaggregation_mode"] == "decode"  # the launch argument
    assert info["internal_states"][0]["disaggregation_mode"] == "prefill"
    loop.run_until(5 + PROFILE.keep_old_series_s + 0.1)
    assert "sglang:generation_tokens_total{decode}" not in series(decode)


def test_vllm_flow_is_sequential_and_counts_like_vllm(loop: VirtualLoop) -> None:
    prefill, decode = vllm_pair(loop)
    ask: dict[str, Any] = chat_body(2000, 1, kv_transfer_params={"do_remote_decode": True})
    ask["stream"] = False
    p_wire, _ = post(prefill, CHAT, ask)
    loop.run_until(2)
    answer = json.loads(p_wire.body)
    params = answer["kv_transfer_params"]
    assert params["do_remote_prefill"] is True
    assert prefill.kv_used() == 2000  # held until it is pulled
    d_wire, _ = post(decode, CHAT, chat_body(2000, 50, kv_transfer_params=params))
    loop.run_until(5)
    assert '"completion_tokens": 50' in d_wire.body
    assert prefill.kv_used() == 0
    transfer = 0.005 + 2000 * 262_144 / 25e9
    assert d_wire.times[0] == pytest.approx(2 + transfer + PROFILE.decode.seconds(1, 2000))
    p, d = series(prefill), series(decode)
    assert (p["vllm:prompt_tokens_total"], p["vllm:generation_tokens_total"]) == (2000, 1)
    assert p["vllm:inter_token_latency_seconds_count"] == 0
    assert d["vllm:generation_tokens_total"] == 50
    assert d["vllm:inter_token_latency_seconds_count"] == 49
    assert d["vllm:nixl_bytes_transferred_sum"] == 2000 * 262_144
    assert "vllm:num_requests_kv_fetch_by_stage" not in p


def test_vllm_refuses_work_of_the_other_role_and_lost_kv(loop: VirtualLoop) -> None:
    prefill, decode = vllm_pair(loop)
    assert post(decode, CHAT, chat_body(10, 5))[0].status == 409
    gone = {"do_remote_prefill": True, "remote_engine_id": "ip", "remote_request_id": "x"}
    assert post(prefill, CHAT, chat_body(10, 5, kv_transfer_params=gone))[0].status == 409
    wire, _ = post(decode, CHAT, chat_body(10, 5, kv_transfer_params=gone))
    loop.run_until(1)
    assert wire.status == 500
    assert decode.idle


@pytest.mark.parametrize("kind", ["slow_worker", "slow_link", "no_metrics", "dead_worker"])
def test_faults_are_named_and_mended(loop: VirtualLoop, kind: str) -> None:
    prefill, _ = sglang_pair(loop)
    assert post(prefill, "/fault", {"kind": kind})[0].status == 401
    assert prefill.set_fault(kind)["kind"] == kind
    assert (get(prefill, "/metrics").status == 404) == (kind == "no_metrics")
    if kind != "dead_worker":  # mending that one opens real sockets
        prefill.set_fault("normal")
        assert get(prefill, "/metrics").status == 200
    with pytest.raises(ValueError, match="unknown fault"):
        prefill.set_fault("fire")


def test_some_metrics_can_vanish(loop: VirtualLoop) -> None:
    prefill, _ = sglang_pair(loop)
    prefill.set_fault("no_metrics", ["sglang:forward_execution"])
    text = get(prefill, "/metrics").body
    assert "sglang:forward_execution" not in text
    assert "sglang:prompt_tokens_total" in text
