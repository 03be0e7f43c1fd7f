"""Writes of planning: evaluations, and the life of recommendations."""

from .evaluate import EvaluationResult, evaluate
from .recheck import recheck
from .recommendations import NotOpen, dismiss, expire_due, mark_applied, score_prediction
from .ticks import claim_due, evaluate_leased

__all__ = [
    "EvaluationResult",
    "NotOpen",
    "claim_due",
    "dismiss",
    "evaluate",
    "evaluate_leased",
    "expire_due",
    "mark_applied",
    "recheck",
    "score_prediction",
]
