"""Words of the Connect wizard: what a test says, why a role is guessed, what coverage means.

Codes come from `telemetry` (tests, discovery, coverage) and from `connecting.fields`. Sentences are
whole; `{named}` parameters are texts that the presenter has formatted.
"""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from apps.common.sentences import Words

from .labels import word

#: What an address looks like, in every language.
HINTS: Final = {
    "prometheus": "https://prometheus.example:9090",
    "router": "http://router.example:30000",
}

STEPS: Final[Words] = {
    "source": pgettext_lazy("step of connecting", "Source"),
    "find": pgettext_lazy("step of connecting", "Find"),
    "coverage": pgettext_lazy("step of connecting", "Coverage"),
    "prices": pgettext_lazy("step of connecting", "Prices and objectives"),
    "commands": pgettext_lazy("step of connecting", "Commands"),
}

#: Why a source, an address or a router does not answer; each says what to do.
PROBLEMS: Final[Words] = {
    "refused": _("The connection was refused: nothing listens there. Check host and port."),
    "no_answer": _("Nothing answered the connection. Check the address, and that firewalls and "
                   "network policies let this host through."),
    "timeout": _("The answer did not come in time. The server is overloaded, or something between "
                 "drops the connection."),
    "html_page": _("A web page answered instead of data: a login page or a proxy. Use the address "
                   "behind it, or a token that it lets pass."),
    "unauthorized": _("The server asks for a credential, or refuses this one (401). Check the "
                      "token."),
    "forbidden": _("The token is known but may not read here (403). Give it the right to read."),
    "tls_expired": _("The server's certificate is out of date. Renew it, or correct the clock."),
    "tls_host": _("The server's certificate belongs to another name. Use the name that it was "
                  "made for."),
    "tls_untrusted": _("The server's certificate is signed by an authority that this host does not "
                       "know. Add the authority to the host's store or to SSL_CERT_FILE."),
    "tls_plain": _("The server does not speak TLS on this port. Use http://, or the port for TLS."),
    "tls": _("The secure connection failed."),
    "not_prometheus": _("Something answered that is not a Prometheus. Check the port, and a path "
                        "such as /prometheus if it stands behind a prefix."),
    "denied": _("This address may not be called from here: it lies outside the allowed networks. "
                "An administrator can allow it with FULCRUM_ALLOWED_NETWORKS."),
    "dns": _("The host name cannot be resolved. Check the spelling, or use its full name."),
    "bad_address": _("This is not a plain address such as https://prometheus.example:9090."),
    "redirect": _("The server redirects to another address, often a login page. Redirects are not "
                  "followed: enter the final address."),
    "too_large": _("The answer is too large. Limit the search to some jobs."),
    "broken": _("The connection broke before the answer was complete. Try again."),
    "http_error": _("The server answered with HTTP status {status}."),
    "refused_query": _("The server refused the query. A label name may not exist there."),
    "no_metrics": _("The address answers, but with no metrics."),
    "no_profile": _("Metrics were read, but none that an engine profile knows."),
    "router_unreadable": _("The router's list of workers cannot be read. Check its address and "
                           "key."),
}  # fmt: skip

#: What is wrong with a field.
ERRORS: Final[Words] = {
    "required": _("Fill this in."),
    "bad_address": _("Not a plain address such as https://prometheus.example:9090."),
    "bad_list": _("One of these is not a plain address. Write one host:port or address a line."),
    "too_many": _("Too many addresses. Connect a Prometheus for a fleet of this size."),
    "bad_label": _("Not a label name: letters, digits and underscores only."),
    "bad_number": _("A number from 1 to 300 is needed."),
    "bad_slug": _("Small letters, digits and hyphens only, 63 at most."),
    "cluster_slug_taken": _("A cluster has this short name already."),
    "unknown_cluster": _("There is no such cluster, or you may not configure it."),
    "new_cluster_not_allowed": _(
        "You may only add to clusters that you configure. A new cluster needs an administrator of "
        "the installation."
    ),
    "slug_taken": _("A deployment has, or had, this short name. Old links still use it."),
    "slug_twice": _("Two of the deployments here have this short name."),
    "name_taken": _("A deployment of this name exists in the same cluster and namespace."),
    "unknown_environment": _("Choose one of the environments."),
    "unknown_team": _("There is no such team, or you may not see it."),
    "no_workers": _("All its workers are left out. Leave out the deployment instead."),
    "role_missing": _("Choose a role: nothing that was read tells it."),
    "accelerator_missing": _("Choose the accelerator: no GPU exporter was joined to them."),
    "gpus_missing": _("How many GPUs does one worker use? Shares below 1 are possible."),
    "pool_differs": _("Workers of one role are one pool: same engine, accelerator and number of "
                      "GPUs. Choose another role or correct the GPUs."),
    "nothing_chosen": _("Choose at least one deployment."),
    "find_first": _("Search the source first."),
    "test_first": _("Test the source first. The test has to pass before the next step."),
    "bad_price": _("A price is a number of at least 0."),
    "bad_objective": _("A time above 0 and below one hour is needed."),
    "unknown_adapter": _("Choose one of the backends."),
    "mode_not_offered": _("This mode is not offered for a new deployment."),
    "mode_needs_second_person": _(
        "Outside a demo, raising the mode takes a second person. Start with observe."
    ),
    "dry_run_first": _("The dry run has to pass first, with what is entered now."),
    "gpus_unknown": _("The GPUs of a pool are not known."),
    "price_overlap": _("A later price of an accelerator exists already. Leave its price empty."),
    "draft_gone": _("This draft was finished or thrown away in another window."),
    "changed_meanwhile": _("Somebody created something of the same name in the meantime. Look "
                           "through the steps and try again."),
    "address_denied": _("An address may not be called from here."),
    "not_allowed": _("You may not configure this."),
    "fields_wrong": _("Some fields are not right; nothing that you typed is lost."),
    "password_removed": _("The address held a password or a query. It was removed and not stored; "
                          "use the token field."),
}  # fmt: skip

ROLE_SOURCES: Final[Words] = {
    "reported": _("the router says so"),
    "declared": _("declared"),
    "pod_label": _("label {name}={value}"),
    "metric_label": _("the engine's label {name}={value}"),
    "behaviour": _("guessed from its traffic ({name} {value}); please confirm"),
    "unknown": _("nothing tells the role; please choose"),
}

UNREAD: Final[Words] = {
    "no_profile": _("no profile reads their metrics"),
    "down": _("the source cannot scrape them"),
    "counted_already": _("a second port of engines that are listed above"),
    "hardware": _("GPU and host exporters: joined to workers, not workers themselves"),
    "no_workers": _("a router or frontend that fits none of the deployments, or several"),
}

ENGINES: Final[Words] = {
    "vllm": "vLLM", "sglang": "SGLang", "dynamo_component": "Dynamo", "smg": "smg",
    "dynamo_frontend": pgettext_lazy("engine", "Dynamo frontend"), "trtllm": "TensorRT-LLM",
}  # fmt: skip

LEVELS: Final[Words] = {
    "0": _("Level 0 of 4: what users feel is not measured yet"),
    "1": _("Level 1 of 4: see"),
    "2": _("Level 2 of 4: explain"),
    "3": _("Level 3 of 4: explain transfer and hardware"),
    "4": _("Level 4 of 4: act"),
}

USED_BY: Final[Words] = {
    "diagnosis": pgettext_lazy("used by", "diagnosis"),
    "objectives": pgettext_lazy("used by", "objectives"),
    "planner": pgettext_lazy("used by", "planner"),
    "cost": pgettext_lazy("used by", "costs"),
    "path": pgettext_lazy("used by", "path of a request"),
    "commands": pgettext_lazy("used by", "commands"),
}

EFFECTS: Final[Words] = {
    "ttft.missing": _("No TTFT: no objective on it, and no diagnosis."),
    "tpot.missing": _("No TPOT: no objective on it, and decode cannot be judged."),
    "requests.missing": _("Demand is not counted where it arrives; requests that never reach an "
                          "engine are not seen."),
    "completions.missing": _("No rate of finished requests: no goodput and no cost per token."),
    "input_tokens.missing": _("No cost per input token, and prefill demand is not known."),
    "output_tokens.missing": _("No cost per output token, and decode demand is not known."),
    "waiting.missing": _("Queues are not seen."),
    "running.missing": _("The load of the engines is not seen."),
    "kv_used.missing": _("A full KV cache is not seen."),
    "waiting.part": _("Queues of some pools are not seen."),
    "running.part": _("The load of some pools is not seen."),
    "kv_used.part": _("The KV cache of some pools is not seen."),
    "queue_time.missing": _("Queue and prefill time cannot be told apart."),
    "kv_transfer.missing": _("The path shows prefill and transfer together."),
    "buckets.between": _("The objective of {objective} lies between two bucket bounds: attainment "
                         "is a range. The nearest bound is {nearest}."),
    "buckets.beyond": _("The largest bound is {largest}: how many requests are later than "
                        "{objective} cannot be told."),
    "roles.missing": _("Prefill and decode cannot be told apart for some workers."),
    "devices.missing": _("GPU activity and power are not shown for some workers."),
    "commands.missing": _("Fulcrum shows and advises, and changes nothing."),
    "workers_missing": _("Figures are marked partial while some workers do not export it."),
}  # fmt: skip

FIXES: Final[Words] = {
    "scrape_edge": _("Let the source scrape the router or frontend too, then check again."),
    "upgrade": _("Turn the engine's metrics on, or use a release that exports it."),
    "choose_bound": _("Choose an objective on a bound in the next step."),
    "role_label": _("Carry the pod's role label over to its series:"),
    "dcgm_exporter": _("Run dcgm-exporter on the GPU nodes with these fields, and let the source "
                       "scrape it:"),
    "connect_backend": _("Enter a backend in step 5, or stay read-only."),
}  # fmt: skip

DRY_RUNS: Final[Words] = {
    "ok": _("The dry run passed: {workers} of these workers are listed, and a change would be "
            "accepted. Nothing was changed."),
    "no_backend": _("There is no backend to try."),
    "read_only": _("The backend was given no key that may write."),
    "unreachable": _("The backend cannot be read. {detail}"),
    "other_workers": _("The router lists other workers than those found here: {workers} of them."),
    "denied": _("The backend refuses: {detail}"),
}  # fmt: skip

ADAPTERS: Final[Words] = {
    "noop": _("None: read-only"),
    "router_workers": _("smg router (membership of workers)"),
    "kubernetes": _("Kubernetes (replicas)"),
}

NEEDS: Final[Words] = {
    "noop": _("Nothing. Fulcrum reads metrics only."),
    "router_workers": _("To read: a control-plane key of the router with role user. For commands: "
                        "one with role admin, which may add, change and remove workers. Moving "
                        "workers between roles also needs the engines' admin key."),
    "kubernetes": _("Not offered yet. This is what it will need: read pods, and patch the scale of "
                    "the workloads named here, in one namespace."),
}  # fmt: skip

MODE_TEXTS: Final[Words] = {
    "observe": _("Diagnosis only. Nothing is advised or changed."),
    "recommend": _("Advice with predicted effect. Nothing can be applied."),
    "approve": _("Advice that a person applies, and rolls back, here."),
    "auto": _("Within guardrails, without asking."),
}

BUTTON: Final[Words] = {
    "not_allowed": _("Connecting a cluster needs the right to configure it. Ask an administrator."),
}

#: Key of a manifest per adapter: what an administrator of the backend applies.
SMG_MANIFEST: Final = """\
# Reading only (observe, recommend): role user. Commands: role admin.
# smg knows no role between them, so let only Fulcrum's address reach this port.
smg launch ... --control-plane-api-keys 'fulcrum:Fulcrum:user:<key>'
smg launch ... --control-plane-api-keys 'fulcrum:Fulcrum:admin:<key>'
"""
KUBERNETES_MANIFEST: Final = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: fulcrum-commands
  namespace: {namespace}
rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [get, list, watch]
  - apiGroups: [apps]
    resources: [deployments, statefulsets]
    verbs: [get, list, watch]
  - apiGroups: [apps]
    resources: [deployments/scale, statefulsets/scale]
    verbs: [get, patch]
  - apiGroups: [leaderworkerset.x-k8s.io]
    resources: [leaderworkersets/scale]
    verbs: [get, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: fulcrum-commands
  namespace: {namespace}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: fulcrum-commands
subjects:
  - kind: ServiceAccount
    name: fulcrum
    namespace: {namespace}
"""


def say(table: Words, code: str, **params: Any) -> str:
    """The sentence of a code with its parameters."""
    return word(table, code).format(**params)
