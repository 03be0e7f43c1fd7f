"""What can be refused, each with a stable code, parameters, and what to do about it.

The message is English for logs and the API; the console words the code itself. Nothing is changed
when one of these is raised.
"""

from __future__ import annotations

from typing import Any, ClassVar


class CommandError(Exception):
    """Base. `http_status` is for the API, `what_to_do` one sentence for people."""

    code: ClassVar[str] = "command_error"
    http_status: ClassVar[int] = 409
    text: ClassVar[str] = "the command was refused"
    what_to_do: ClassVar[str] = "Open the command's page and read its log."

    def __init__(self, **params: Any) -> None:
        self.params = params
        super().__init__(self.text.format_map(_Lenient(params)))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.params))


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def _rebuild(kind: type[CommandError], params: dict[str, Any]) -> CommandError:
    return kind(**params)


class NotAllowed(CommandError):
    code = "not_allowed"
    http_status = 403
    text = "this needs the permission {permission} on the deployment"
    what_to_do = "Ask an administrator for the role, or a person who holds it to act."


class CommandNotFound(CommandError):
    code = "not_found"
    http_status = 404
    text = "there is no command {number} that you may see"
    what_to_do = "Check the number; commands of other teams are not shown."


class UnknownPool(CommandError):
    code = "unknown_pool"
    http_status = 422
    text = "the deployment has no pool {role} that can be planned"
    what_to_do = "Name the pools that the deployment page shows."


class UnknownWorker(CommandError):
    code = "unknown_worker"
    http_status = 409
    text = "the router lists {url}, which is not in the inventory"
    what_to_do = "Wait for the next observation, or declare the worker, then propose again."


class TargetBelowMinimum(CommandError):
    code = "floor"
    http_status = 422
    text = "{role} {target} is below the minimum of {minimum} workers"
    what_to_do = "Choose at least the minimum, or lower the pool's minimum first."


class TargetAboveMaximum(CommandError):
    code = "target_above_maximum"
    http_status = 422
    text = "{role} {target} is above the maximum of {maximum} workers"
    what_to_do = "Choose at most the maximum, or raise the pool's maximum first."


class NothingToChange(CommandError):
    code = "nothing_to_change"
    http_status = 422
    text = "the deployment has these counts already"
    what_to_do = "Choose other targets."


class BadTarget(CommandError):
    code = "bad_target"
    http_status = 422
    text = "the target of {role} is not a whole number of workers: {target}"
    what_to_do = "Give each role an absolute number of workers, 0 or more."


class InfeasiblePlan(CommandError):
    code = "infeasible"
    http_status = 422
    text = "no safe way leads to these targets: {error}"
    what_to_do = "Choose targets that the present workers and GPUs can reach."


class InsufficientGpus(CommandError):
    code = "no_gpus"
    text = "the plan needs {gpus_needed} more GPUs on the way and {gpus_free} are free"
    what_to_do = "Free or add GPUs, or move workers between the pools instead of adding."


class StaleRevision(CommandError):
    code = "stale_revision"
    text = "revision {expected} was expected and the deployment is at {current}"
    what_to_do = "Look at the present state and propose again from it."


class ActiveCommandExists(CommandError):
    code = "active_command"
    text = "command {command} is active on this deployment"
    what_to_do = "Wait for it to end, or cancel it, then propose again."


class BackendUnreachable(CommandError):
    code = "backend_unreachable"
    http_status = 503
    text = "the backend cannot be read: {error}"
    what_to_do = "Check the router's address and key on the settings page; nothing was changed."


class PreflightDenied(CommandError):
    code = "backend_refused"
    text = "the backend would refuse: {error}"
    what_to_do = "Give the credential or engine option that is named, then propose again."


class DataStale(CommandError):
    code = "stale_data"
    text = "the latest measurements are {age_s} s old; a reduction needs fresh ones"
    what_to_do = "Restore the metrics source, or propose growth only."
    #: True where no figure is recent enough to wait for the next one (DESIGN §4a).
    is_gone = False


class KillSwitchOn(CommandError):
    code = "kill_switch"
    text = "the kill switch of {scope} is on"
    what_to_do = "Find out why it was set; it is released on the deployment or settings page."


class ModeTooLow(CommandError):
    code = "mode"
    text = "the deployment is in mode {mode}; commands need approve or auto"
    what_to_do = "Raise the mode of the deployment (and the cap of its cluster) first."


class DeploymentFrozen(CommandError):
    code = "freeze"
    text = "the deployment is frozen until {until}: {reason}"
    what_to_do = "Wait, or acknowledge the freeze."


class RecommendationClosed(CommandError):
    code = "not_open"
    text = "recommendation {number} is {state}"
    what_to_do = "Open the newest recommendation of the deployment."


class GuardrailRefused(CommandError):
    code = "guardrail"
    text = "a guardrail refuses now: {guardrail}"
    what_to_do = "Wait until the guardrail allows it; the recommendation shows when."


class IdempotencyConflict(CommandError):
    code = "idempotency"
    http_status = 422
    text = "this idempotency key was used for another request"
    what_to_do = "Use a new key for a new request."


class WrongState(CommandError):
    code = "wrong_state"
    text = "the command is {state}; this is not possible any more"
    what_to_do = "Reload the command's page."


class PlanChanged(CommandError):
    code = "plan_changed"
    text = "the plan shown was another one; its hash is now {plan_hash}"
    what_to_do = "Read the present plan, then decide again."


class OwnProposal(CommandError):
    code = "own_proposal"
    http_status = 403
    text = "whoever proposed a change may not approve it in {environment}"
    what_to_do = "Ask another approver."


class TokenMayNotApprove(CommandError):
    code = "token"
    http_status = 403
    text = "tokens never approve in {environment}"
    what_to_do = "Sign in as a person to approve."


class AlreadyDecided(CommandError):
    code = "already_decided"
    text = "you have decided about this command already"
    what_to_do = "Another approver must decide."
