"""Which role a worker has, how we know, and what contradicts it (metrics research §4). Pure.

Order of trust: our own inventory; a pod's label that came through relabelling; the engine's own
metric label; behaviour. Behaviour is a cross-check: it names a role only where nothing else does,
and then as a guess for a person to confirm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from apps.engines.window import CounterIncrease, HistogramIncrease, Signal, Window

PREFILL: Final = "prefill"
DECODE: Final = "decode"
MIXED: Final = "mixed"

#: First tokens (or finished legs) that a judgement of behaviour needs.
MIN_REQUESTS: Final = 20
#: Gaps between tokens per first token below which a worker makes no answers.
PREFILL_RATIO: Final = 0.05
#: Share of prompt tokens that came by transfer from which a worker is a decoder.
TRANSFERRED_SHARE: Final = 0.9
#: A decode worker that computes more than this share of its prompt tokens prefills (a healthy one
#: computes exactly none: metrics research §8), if they are at least `MIN_COMPUTED_TOKENS`.
COMPUTED_SHARE: Final = 0.02
MIN_COMPUTED_TOKENS: Final = 100
#: Seconds that a disagreement has to last before it is a finding (metrics research §4).
HOLD_S: Final = 600.0


class RoleSource(StrEnum):
    """Where a role comes from, most trusted first. The first two are our own inventory."""

    REPORTED = "reported"
    DECLARED = "declared"
    POD_LABEL = "pod_label"
    METRIC_LABEL = "metric_label"
    BEHAVIOUR = "behaviour"
    UNKNOWN = "unknown"


_INVENTORY: Final = (RoleSource.REPORTED, RoleSource.DECLARED)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a worker did over some minutes; None where it does not export it.

    `first_tokens` counts its own times to a first token, `token_gaps` its gaps between tokens,
    `legs` the requests it finished. `kv_role` is the connector's own setting where known
    (`kv_producer`, `kv_consumer`, `kv_both`); `has_fetch_stages` is the presence of the family of
    KV pulls, which proves a decoder only when `kv_role` says consumer.
    """

    first_tokens: float | None = None
    token_gaps: float | None = None
    legs: float | None = None
    output_tokens: float | None = None
    computed_tokens: float | None = None
    transferred_tokens: float | None = None
    kv_role: str = ""
    has_fetch_stages: bool | None = None

    @property
    def transferred_share(self) -> float | None:
        """Share of prompt tokens whose KV came from another worker; None without prompts."""
        if self.computed_tokens is None or self.transferred_tokens is None:
            return None
        total = self.computed_tokens + self.transferred_tokens
        return self.transferred_tokens / total if total > 0 else None


@dataclass(frozen=True, slots=True)
class RoleEvidence:
    """Everything known about one worker's role.

    `inventory_source` is `reported` (the router or orchestrator says so) or `declared` (a person
    does), `unknown` without one. `pod_labels` are labels of the target, under any spelling that
    relabelling gives them; `metric_labels` maps label names of the engine's own series to the
    values seen. `engine` is the serving engine (for Dynamo the one underneath, if known).
    `has_prefill` says whether the deployment has prefill workers at all.
    """

    inventory_role: str = ""
    inventory_source: str = RoleSource.UNKNOWN
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    metric_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    engine: str = ""
    engine_version: str = ""
    behaviour: Behaviour | None = None
    has_prefill: bool = True


@dataclass(frozen=True, slots=True)
class Claim:
    """One piece of evidence: `name` with `value` says `role`, and contradicts all but `fits`."""

    source: RoleSource
    name: str
    value: str
    role: str
    fits: frozenset[str]


@dataclass(frozen=True, slots=True)
class RoleDecision:
    """The role, whose word it is, and what agrees or contradicts."""

    role: str
    source: RoleSource
    agreeing: tuple[Claim, ...] = ()
    contradicting: tuple[Claim, ...] = ()

    @property
    def is_guess(self) -> bool:
        """True if only behaviour speaks: shown for a person to confirm, never stored as a role."""
        return self.source is RoleSource.BEHAVIOUR


def decide(evidence: RoleEvidence) -> RoleDecision:
    """The role by the order of trust."""
    claims = tuple(_claims(evidence))
    if not claims:
        return RoleDecision("", RoleSource.UNKNOWN)
    first = claims[0]
    others = claims[1:]
    return RoleDecision(
        role=first.role,
        source=first.source,
        agreeing=tuple(claim for claim in others if first.role in claim.fits),
        contradicting=tuple(claim for claim in others if first.role not in claim.fits),
    )


def claims_of(evidence: RoleEvidence) -> tuple[Claim, ...]:
    """All evidence, most trusted first: the first one is why `decide` says what it says."""
    return tuple(_claims(evidence))


def _claims(evidence: RoleEvidence) -> Iterable[Claim]:
    """All claims, most trusted first."""
    if evidence.inventory_role and evidence.inventory_source in _INVENTORY:
        source = RoleSource(evidence.inventory_source)
        role = evidence.inventory_role
        yield Claim(source, "inventory", role, role, frozenset({role}))
    yield from _pod_claims(evidence.pod_labels)
    for name, values in sorted(evidence.metric_labels.items()):
        # Two values at once are a role switch under way: no claim.
        if len(values) == 1:
            yield from _metric_claims(name, values[0], evidence)
    if evidence.behaviour is not None:
        yield from _behaviour_claims(evidence.behaviour, evidence.has_prefill)


#: Roles in the words of llm-d (both its present and its legacy ones), AIBrix, Dynamo and smg.
_WORDS: Final = {
    "prefill": PREFILL,
    "decode": DECODE,
    "prefill-decode": MIXED,
    "both": MIXED,
    "regular": MIXED,
    "aggregated": MIXED,
    "mixed": MIXED,
    "encode": "encode",
    "encode-prefill": "encode-prefill",
    "encode-prefill-decode": "encode-prefill-decode",
}
_POD_LABELS: Final = ("llm_d_ai_role", "role_name", "dynamo_sub_component_type", "fulcrum_role")
_RELABELLED: Final = re.compile(r"^(?:exported_|__meta_kubernetes_|pod_label_|pod_|label_)+")


def _plain(label: str) -> str:
    """A label's name without what pipelines put around it (`label_llm_d_ai_role`)."""
    return _RELABELLED.sub("", re.sub(r"[^a-z0-9]", "_", label.lower()))


def _pod_claims(labels: Mapping[str, str]) -> Iterable[Claim]:
    plain = {_plain(name): (name, value.strip().lower()) for name, value in labels.items()}
    for name, (written, value) in sorted(plain.items()):
        if name == "role" or name.endswith(_POD_LABELS):
            role = _WORDS.get(value)
            if role is not None:
                yield _one(RoleSource.POD_LABEL, written, value, role)
    kinds = [item for name, item in plain.items() if name.endswith("dynamo_component_type")]
    has_sub = any(name.endswith("dynamo_sub_component_type") for name in plain)
    # The Dynamo operator writes no sub-type on a worker that does both.
    if not has_sub and kinds and kinds[0][1] == "worker":
        yield _one(RoleSource.POD_LABEL, kinds[0][0], "worker", MIXED)


def _one(source: RoleSource, name: str, value: str, role: str) -> Claim:
    return Claim(source, name, value, role, frozenset({role}))


def _metric_claims(name: str, value: str, evidence: RoleEvidence) -> Iterable[Claim]:
    source = RoleSource.METRIC_LABEL
    word = value.strip().lower()
    if name == "engine_type":
        if word in (PREFILL, DECODE):
            yield _one(source, name, word, word)
        elif word == "unified" and _at_least(evidence.engine_version, (0, 5, 9)):
            # Older releases write `unified` on every worker.
            yield _one(source, name, word, MIXED)
    elif name == "dynamo_component":
        if word == "backend":
            yield _backend(evidence)
        elif word in (PREFILL, DECODE, "encode"):
            yield _one(source, name, word, word)
    elif name in ("worker_type", "role") and word in _WORDS:
        yield _one(source, name, word, _WORDS[word])


def _backend(evidence: RoleEvidence) -> Claim:
    """`backend` is the decoder of a split, or a worker that does both. Dynamo #8239: SGLang prefill
    workers write it too, so that it contradicts `prefill` only for engines known to be others."""
    fits = {DECODE, MIXED}
    if evidence.engine.lower() not in ("vllm", "trtllm", "tensorrt-llm", "tensorrt_llm"):
        fits.add(PREFILL)
    role = DECODE if evidence.has_prefill else MIXED
    return Claim(RoleSource.METRIC_LABEL, "dynamo_component", "backend", role, frozenset(fits))


def _at_least(version: str, wanted: tuple[int, ...]) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[: len(wanted)])
    return len(numbers) == len(wanted) and numbers >= wanted


def _behaviour_claims(found: Behaviour, has_prefill: bool) -> Iterable[Claim]:
    source = RoleSource.BEHAVIOUR
    roles = {"kv_producer": PREFILL, "kv_consumer": DECODE}
    if found.kv_role in roles and (found.kv_role == "kv_producer" or found.has_fetch_stages):
        yield _one(source, "kv_role", found.kv_role, roles[found.kv_role])
    ratio = token_ratio(found)
    if ratio is None:
        return
    shown = f"{ratio:.2f}"
    if ratio < PREFILL_RATIO:
        yield _one(source, "tokens_per_request", shown, PREFILL)
        return
    share = found.transferred_share
    if share is not None and share >= TRANSFERRED_SHARE:
        yield _one(source, "transferred_share", f"{share:.2f}", DECODE)
    elif share is not None and share <= 1 - TRANSFERRED_SHARE:
        yield _one(source, "transferred_share", f"{share:.2f}", MIXED)
    else:
        role = DECODE if has_prefill else MIXED
        yield Claim(source, "tokens_per_request", shown, role, frozenset({DECODE, MIXED}))


def token_ratio(found: Behaviour) -> float | None:
    """Gaps between tokens per first token: about 0 on prefill, output length - 1 else.

    Where gaps or first tokens are not exported (SGLang's prefill workers observe neither), the
    tokens of a finished leg beyond its first one stand in. None below `MIN_REQUESTS`.
    """
    if found.first_tokens is not None and found.token_gaps is not None:
        enough = found.first_tokens >= MIN_REQUESTS
        return found.token_gaps / found.first_tokens if enough else None
    if found.legs is None or found.output_tokens is None or found.legs < MIN_REQUESTS:
        return None
    return max(0.0, found.output_tokens / found.legs - 1.0)


def behaviour_of(window: Window, url: str) -> Behaviour:
    """What a window of a pool says about one of its workers."""

    def counted(signal: Signal) -> float | None:
        value = window.values.get(signal)
        return value.by_worker.get(url) if isinstance(value, CounterIncrease) else None

    def observed(*signals: Signal) -> float | None:
        for signal in signals:
            value = window.values.get(signal)
            if isinstance(value, HistogramIncrease) and url in value.count_by_worker:
                return value.count_by_worker[url]
        return None

    return Behaviour(
        first_tokens=observed(Signal.LEG_TTFT, Signal.TTFT),
        token_gaps=observed(Signal.ITL),
        legs=counted(Signal.REQUESTS_COMPLETED),
        output_tokens=counted(Signal.OUTPUT_TOKENS),
        computed_tokens=counted(Signal.COMPUTED_TOKENS),
        transferred_tokens=counted(Signal.TRANSFERRED_TOKENS),
    )


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Something contradicts a worker's role.

    `code`: `decode_prefills` (a decode worker computes prompts: KV transfer falls back to
    recomputing), `prefill_decodes`, `label_contradicts` (a label names another role), or
    `behaviour_contradicts`. `params` hold the figures of its sentence.
    """

    code: str
    worker: str
    params: Mapping[str, Any] = field(default_factory=dict)


def disagreements(
    worker: str, decision: RoleDecision, found: Behaviour | None
) -> tuple[Disagreement, ...]:
    """What contradicts the role now; `lasting` says which of it is old enough to tell."""
    result: list[Disagreement] = []
    if decision.role == DECODE and found is not None and _prefills(found):
        share = 1.0 - (found.transferred_share or 0.0)
        computed: dict[str, Any] = {"computed_share": share, "tokens": found.computed_tokens}
        result.append(Disagreement("decode_prefills", worker, computed))
    for claim in decision.contradicting:
        params: dict[str, Any] = {
            "role": decision.role,
            "role_source": decision.source.value,
            "says": claim.role,
            "label": claim.name,
            "value": claim.value,
        }
        if claim.source is not RoleSource.BEHAVIOUR:
            result.append(Disagreement("label_contradicts", worker, params))
        elif decision.role == PREFILL:
            result.append(Disagreement("prefill_decodes", worker, params))
        elif not any(item.code == "decode_prefills" for item in result):
            result.append(Disagreement("behaviour_contradicts", worker, params))
    return tuple({item.code: item for item in result}.values())


def _prefills(found: Behaviour) -> bool:
    share = found.transferred_share
    return (
        share is not None
        and (found.computed_tokens or 0.0) >= MIN_COMPUTED_TOKENS
        and 1.0 - share > COMPUTED_SHARE
    )


def is_judged(found: Behaviour | None) -> bool:
    """True if the worker did enough for its behaviour to clear an earlier disagreement."""
    return found is not None and (
        token_ratio(found) is not None or found.transferred_share is not None
    )


def lasting(since: datetime, now: datetime, hold_s: float = HOLD_S) -> bool:
    """True if a disagreement is old enough to be a finding."""
    return (now - since).total_seconds() >= hold_s
