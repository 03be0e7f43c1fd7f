"""Writes of planning: evaluations, the life of recommendations, workload profiles."""

from .evaluate import EvaluationResult, evaluate
from .recheck import recheck
from .recommendations import NotOpen, dismiss, expire_due, mark_applied, score_prediction
from .ticks import claim_due, evaluate_leased
from .workloads import build_workload, build_workloads

__all__ = [
    "EvaluationResult",
    "NotOpen",
    "build_workload",
    "build_workloads",
    "claim_due",
    "dismiss",
    "evaluate",
    "evaluate_leased",
    "expire_due",
    "mark_applied",
    "recheck",
    "score_prediction",
]
