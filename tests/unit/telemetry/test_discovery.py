"""Discovery: deployments, roles with their evidence, GPUs, edges, and what nothing reads.

Names and labels are those of the recordings and written samples; target labels are added as a
Prometheus adds them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apps.engines.exposition import parse
from apps.telemetry.domain.discovery import discover, undecided
from apps.telemetry.domain.draft_coverage import DraftWorker, draft_report, nearest
from apps.telemetry.domain.found import (
    Discovery,
    Observation,
    ScrapedTarget,
    SeriesLabels,
    discovery_from_json,
)
from apps.telemetry.domain.recognise import (
    CatalogEntry,
    accelerator_of,
    anchors,
    ladders,
    profile_of,
    profiles,
)
from apps.telemetry.domain.roles import Behaviour

DATA = Path(__file__).resolve().parents[2] / "data" / "engines"
AT = 1_800_000_000.0
CATALOG = (
    CatalogEntry("h200-sxm", ("H200 SXM 141GB", "NVIDIA H200")),
    CatalogEntry("h100-sxm", ("H100 SXM 80GB", "NVIDIA H100 80GB HBM3")),
)
#: The plain GPU metric that dcgm-exporter always has.
GPU = "DCGM_FI_DEV_GPU_UTIL"


class World:
    """Targets of a Prometheus, built from expositions."""

    def __init__(self) -> None:
        self.targets: list[ScrapedTarget] = []
        self.names: dict[str, frozenset[str]] = {}
        self.series: list[SeriesLabels] = []

    def add(
        self, sample: str, instance: str, *, job: str = "fleet", swap: dict[str, str] | None = None,
        **labels: str,
    ) -> None:  # fmt: skip
        """One target that exports a sample; `swap` replaces text of it (a model's name)."""
        path = next(DATA.rglob(sample))
        text = path.read_text(encoding="utf-8")
        for old, new in (swap or {}).items():
            assert old in text
            text = text.replace(old, new)
        known = {name for profile in profiles() for name in anchors(profile.profile)}
        found = parse(text).series
        self.names[instance] = frozenset(item.name for item in found)
        self.series += [
            SeriesLabels(instance, item.name, {**dict(item.labels), **labels})
            for item in found
            if item.name in known
        ]
        self.targets.append(ScrapedTarget(instance, job, labels=labels, sample_at=AT - 4))

    def gpus(self, namespace: str, pod: str, count: int, model: str = "NVIDIA H200") -> None:
        """GPUs of a pod as an exporter on the node reports them (its own labels kept apart)."""
        for index in range(count):
            labels = {
                "exported_pod": pod, "exported_namespace": namespace, "pod": "dcgm-1",
                "namespace": "monitoring", "UUID": f"GPU-{pod}-{index}", "modelName": model,
            }  # fmt: skip
            # A pair of servers would report each twice.
            self.series += [SeriesLabels("node-1:9400", GPU, labels)] * 2

    def find(self, **behaviours: Behaviour) -> Discovery:
        return discover(self.observed, CATALOG, behaviours)

    @property
    def observed(self) -> Observation:
        return Observation(tuple(self.targets), self.names, tuple(self.series), AT)


@pytest.fixture()
def world() -> World:
    return World()


def roles(found: Discovery, index: int = 0) -> dict[str, str]:
    return {w.instance: w.role for w in found.deployments[index].workers}


def test_sglang_roles_come_from_its_own_label_with_the_evidence(world: World) -> None:
    world.add("sglang-prefill.prom", "10.0.0.1:30000", pod="p-0", namespace="chat")
    world.add("sglang-decode.prom", "10.0.0.2:30000", pod="d-0", namespace="chat")
    world.add("sglang-decode.prom", "10.0.0.3:30000", pod="d-1", namespace="chat")
    (one,) = world.find().deployments
    assert (one.namespace, one.model, one.slug) == ("chat", "qwen3-32b", "qwen3-32b")
    assert {(g.role, g.evidence, g.evidence_value, len(g.workers)) for g in one.groups} == {
        ("prefill", "engine_type", "prefill", 1),
        ("decode", "engine_type", "decode", 2),
    }
    assert {g.role_source for g in one.groups} == {"metric_label"}
    assert [w.name for w in one.workers] == ["d-0", "d-1", "p-0"]
    assert {w.age_s for w in one.workers} == {4.0}


def test_a_pod_label_wins_over_the_engine_and_the_contradiction_is_kept(world: World) -> None:
    world.add("sglang-decode.prom", "10.0.0.1:30000", llm_d_ai_role="prefill")
    (worker,) = world.find().deployments[0].workers
    assert (worker.role, worker.role_source) == ("prefill", "pod_label")
    assert worker.evidence == "llm_d_ai_role"
    assert worker.against == ("engine_type=decode",)


def test_the_same_model_in_two_namespaces_is_two_deployments(world: World) -> None:
    world.add("vllm-mixed.prom", "10.0.0.1:8000", namespace="team-a")
    world.add("vllm-mixed.prom", "10.0.0.2:8000", namespace="team-b")
    found = world.find()
    assert [d.namespace for d in found.deployments] == ["team-a", "team-b"]
    assert [d.slug for d in found.deployments] == ["qwen3-32b-team-a", "qwen3-32b-team-b"]
    assert len({d.key for d in found.deployments}) == 2


def test_model_names_are_one_whatever_their_case(world: World) -> None:
    world.add("vllm-mixed.prom", "10.0.0.1:8000", namespace="a", swap={"qwen3-32b": "Qwen3-32B"})
    world.add("vllm-mixed.prom", "10.0.0.2:8000", namespace="a")
    (one,) = world.find().deployments
    assert one.model == "Qwen3-32B"
    assert len(one.workers) == 2


def test_engines_without_any_label_ask_for_behaviour(world: World) -> None:
    world.add("vllm-prefill.prom", "10.0.0.1:8000")
    world.add("vllm-decode.prom", "10.0.0.2:8000")
    assert undecided(world.observed) == (("10.0.0.1:8000", "vllm"), ("10.0.0.2:8000", "vllm"))
    assert set(roles(world.find()).values()) == {""}
    found = world.find(
        **{
            "10.0.0.1:8000": Behaviour(first_tokens=100, token_gaps=0),
            "10.0.0.2:8000": Behaviour(first_tokens=100, token_gaps=20_000),
        }
    )
    assert roles(found) == {"10.0.0.1:8000": "prefill", "10.0.0.2:8000": "decode"}
    assert {g.role_source for g in found.deployments[0].groups} == {"behaviour"}


def test_a_dynamo_fleet(world: World) -> None:
    """Recorded: the prefill worker names no model yet, the frontend exports worker families."""
    world.add("dynamo-1.6.1-prefill-worker-loaded.prom", "10.0.0.1:9090", namespace="dyn")
    world.add("dynamo-1.6.1-decode-worker-loaded.prom", "10.0.0.2:9090", namespace="dyn")
    world.add("dynamo-1.6.1-frontend-loaded.prom", "10.0.0.3:8000", namespace="dyn")
    (one,) = world.find().deployments
    assert {w.instance: w.role for w in one.workers} == {
        "10.0.0.1:9090": "prefill",
        "10.0.0.2:9090": "decode",
    }
    assert [(e.instance, e.scope, e.match) for e in one.edges] == [
        ("10.0.0.3:8000", "frontend", {})
    ]


def test_an_engine_port_beside_its_dynamo_port_is_not_counted_twice(world: World) -> None:
    world.add("dynamo-1.6.1-decode-worker-loaded.prom", "10.0.0.2:9090", pod="d-0", namespace="x")
    world.add("vllm-decode.prom", "10.0.0.2:8000", pod="d-0", namespace="x")
    found = world.find()
    assert [w.instance for d in found.deployments for w in d.workers] == ["10.0.0.2:9090"]
    assert [(u.reason, u.examples) for u in found.unread] == [
        ("counted_already", ("10.0.0.2:8000",))
    ]


def test_a_frontend_of_two_models_is_matched_to_each(world: World) -> None:
    text = {"fake-8b": "Fake-8B"}
    world.add("dynamo-1.6.1-decode-worker-loaded.prom", "10.0.0.2:9090", namespace="x", swap=text)
    world.add("vllm-mixed.prom", "10.0.0.4:8000", namespace="x")
    world.add("dynamo-1.6.1-frontend-loaded.prom", "10.0.0.3:8000", namespace="x")
    extra = [
        SeriesLabels(s.instance, s.name, {**s.labels, "model": "qwen3-32b"})
        for s in world.series
        if s.instance == "10.0.0.3:8000"
    ]
    world.series += extra
    found = world.find()
    assert {d.model: [e.match for e in d.edges] for d in found.deployments} == {
        "Fake-8B": [{"model": "fake-8b"}],
        "qwen3-32b": [{"model": "qwen3-32b"}],
    }


def test_a_router_goes_with_the_workers_that_it_names(world: World) -> None:
    """The recorded router names its workers by address; nothing else joins them."""
    path = next(DATA.rglob("smg-1.13.0-pd.prom"))
    told = parse(path.read_text(), anchors("smg")).series
    url = min(dict(s.labels)["worker"] for s in told if "worker" in dict(s.labels))
    instance = url.removeprefix("http://").rstrip("/")
    world.add("smg-1.13.0-pd.prom", "10.0.0.9:29000")
    world.add("vllm-mixed.prom", instance, namespace="a")
    world.add("sglang-decode.prom", "10.0.0.2:30000", namespace="b", swap={"qwen3-32b": "other"})
    found = world.find()
    assert {d.namespace: [e.instance for e in d.edges] for d in found.deployments} == {
        "a": ["10.0.0.9:29000"],
        "b": [],
    }


def test_a_router_that_fits_several_is_left_for_a_person(world: World) -> None:
    world.add("smg.prom", "10.0.0.9:29000", namespace="a")
    world.add("vllm-mixed.prom", "10.0.0.1:8000", namespace="a")
    world.add("vllm-mixed.prom", "10.0.0.2:8000", namespace="a", swap={"qwen3-32b": "other"})
    found = world.find()
    assert all(not d.edges for d in found.deployments)
    assert ("no_workers", 1) in [(u.reason, u.count) for u in found.unread]


def test_several_engines_behind_one_pod_address(world: World) -> None:
    world.add("vllm-mixed.prom", "10.0.0.1:8000", namespace="a", pod="p-0")
    world.add("vllm-mixed.prom", "10.0.0.1:8001", namespace="a", pod="p-0")
    world.gpus("a", "p-0", 8)
    (one,) = world.find().deployments
    assert [w.name for w in one.workers] == ["p-0:8000", "p-0:8001"]
    assert {(w.accelerator, w.devices) for w in one.workers} == {("h200-sxm", "4")}


def test_gpus_are_joined_by_the_pod_that_uses_them(world: World) -> None:
    world.add("sglang-prefill.prom", "10.0.0.1:30000", pod="p-0", namespace="chat")
    world.add("sglang-decode.prom", "10.0.0.2:30000", pod="d-0", namespace="chat")
    world.gpus("chat", "p-0", 4)
    world.gpus("other", "d-0", 8)
    found = {w.pod: (w.accelerator, w.devices) for w in world.find().deployments[0].workers}
    assert found == {"p-0": ("h200-sxm", "4"), "d-0": ("", None)}


def test_what_nothing_reads_is_listed_by_job_with_the_reason(world: World) -> None:
    world.add("vllm-mixed.prom", "10.0.0.1:8000")
    world.add("dcgm.prom", "node-1:9400", job="dcgm")
    world.targets += [ScrapedTarget(f"10.0.1.{n}:9100", "mystery", sample_at=AT) for n in range(5)]
    world.targets.append(ScrapedTarget("10.0.2.1:8000", "vllm", is_up=False, error="refused"))
    found = {(u.job, u.reason): (u.count, len(u.examples), u.error) for u in world.find().unread}
    assert found == {
        ("mystery", "no_profile"): (5, 3, ""),
        ("vllm", "down"): (1, 1, "refused"),
        ("dcgm", "hardware"): (1, 1, ""),
    }


def test_an_address_scraped_by_two_jobs_is_one_engine(world: World) -> None:
    world.add("vllm-mixed.prom", "10.0.0.1:8000", job="a")
    world.targets.append(ScrapedTarget("10.0.0.1:8000", "b", sample_at=AT))
    assert len(world.find().deployments[0].workers) == 1


def test_the_instance_label_finds_the_series_again(world: World) -> None:
    """The collector joins by host and port of the metrics address."""
    world.add("vllm-mixed.prom", "vllm-0")
    world.targets[0] = ScrapedTarget("vllm-0", "fleet", url="https://10.0.0.1:8000/custom")
    (worker,) = world.find().deployments[0].workers
    assert worker.metrics_url == "https://vllm-0/custom"


def test_findings_survive_json(world: World) -> None:
    world.add("dynamo-1.6.1-decode-worker-loaded.prom", "10.0.0.2:9090", pod="d-0", namespace="x")
    world.add("dynamo-1.6.1-frontend-loaded.prom", "10.0.0.3:8000", namespace="x")
    found = world.find()
    assert discovery_from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.prom")), ids=lambda p: p.name)
def test_each_recording_is_recognised(path: Path) -> None:
    names = frozenset(item.name for item in parse(path.read_text(encoding="utf-8")).series)
    profile = profile_of(names)
    expected = {
        "dynamo-1.6.1-frontend": "dynamo_frontend", "dynamo-frontend": "dynamo_frontend",
        "dynamo-1.6.1-planner": "", "dynamo": "dynamo_component",
        "vllm-router": "vllm_router", "vllm": "vllm",
        "sglang-router": "sglang_router", "sglang": "sglang", "smg": "smg", "dcgm": "dcgm",
        "node-exporter": "node", "trtllm": "trtllm",
    }  # fmt: skip
    stem = max((key for key in expected if path.name.startswith(key)), key=len)
    assert (profile.profile if profile else "") == expected[stem]


@pytest.mark.parametrize(
    ("model", "slug"),
    [
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("nvidia h200 ", "h200-sxm"),
        ("NVIDIA H2000", ""),
        ("NVIDIA GH200 480GB", ""),
        ("", ""),
    ],
)
def test_accelerators_are_named_by_the_catalog_or_asked_for(model: str, slug: str) -> None:
    assert accelerator_of(model, CATALOG) == slug


def test_bounds_are_read_as_numbers_in_seconds() -> None:
    name = "vllm:time_to_first_token_seconds_bucket"
    found = ladders([(name, "0.5"), (name, "1"), (name, "1.0"), (name, "+Inf")], "vllm")
    assert found == {"ttft": (0.5, 1.0)}
    assert nearest(1.2, (0.5, 1.0, 2.5)) == 1.0


def lines(found: Discovery, **more: Any) -> dict[str, tuple[str, str]]:
    one = found.deployments[0]
    workers = [DraftWorker(w, w.role, w.devices is not None) for w in one.workers]
    report = draft_report(one, workers, **more)
    return {line.code: (line.found.value, line.effect) for line in report.lines} | {
        "level": (report.level.name, "")
    }


def test_coverage_of_a_draft_names_what_is_missing(world: World) -> None:
    world.add("sglang-prefill.prom", "10.0.0.1:30000", pod="p-0", namespace="x")
    world.add("sglang-decode.prom", "10.0.0.2:30000", pod="d-0", namespace="x")
    bare = lines(world.find())
    assert bare["ttft"] == bare["tpot"] == ("found", "")
    # No router: nobody counts users' requests where they arrive.
    assert bare["requests"] == ("missing", "requests.missing")
    assert bare["level"] == ("NONE", "")
    world.add("smg.prom", "10.0.0.9:29000", namespace="x")
    world.gpus("x", "p-0", 1)
    full = lines(world.find())
    assert full["requests"] == ("found", "")
    assert full["devices"] == ("part", "devices.missing")
    assert full["level"] == ("HARDWARE", "")
    assert lines(world.find(), can_act=True)["level"] == ("ACT", "")


def test_an_objective_off_the_ladder_is_told(world: World) -> None:
    world.add("sglang-decode.prom", "10.0.0.2:30000")
    found = world.find()
    ladder = {"ttft": (0.5, 1.0, 2.0)}
    assert lines(found, ladders=ladder, objectives={"ttft": 1.0})["buckets"][0] == "found"
    between = lines(found, ladders=ladder, objectives={"ttft": 1.2})["buckets"]
    assert between == ("part", "buckets.between")
    beyond = lines(found, ladders=ladder, objectives={"ttft": 4.0})["buckets"]
    assert beyond == ("conflict", "buckets.beyond")
