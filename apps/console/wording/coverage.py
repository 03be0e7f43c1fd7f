"""Sentences of coverage: what was looked for, what was found, what a gap costs, how to close it."""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext, pgettext_lazy

from apps.common.sentences import Plural, Sentences

#: `CoverageLineView.title`.
TITLES: Final[Sentences] = {
    "coverage.ttft": (_("TTFT histogram"),),
    "coverage.tpot": (_("TPOT or inter-token histogram"),),
    "coverage.requests": (_("Requests that arrive"),),
    "coverage.completions": (_("Requests that end"),),
    "coverage.input_tokens": (_("Input tokens"),),
    "coverage.output_tokens": (_("Output tokens"),),
    "coverage.waiting": (_("Requests waiting"),),
    "coverage.running": (_("Requests running"),),
    "coverage.kv_used": (_("KV cache used"),),
    "coverage.queue_time": (_("Queue time"),),
    "coverage.kv_transfer": (_("KV transfer time"),),
    "coverage.buckets": (_("Bucket bounds against the objective"),),
    "coverage.roles": (_("Roles of workers"),),
    "coverage.workers": (_("Metrics of workers"),),
    "coverage.pool_metrics": (_("Metrics of the {role} pool"),),
    "coverage.duplicates": (_("One engine under two addresses"),),
    "coverage.orphans": (_("Targets without a worker"),),
    "coverage.devices": (_("GPUs joined to workers"),),
    "coverage.device_fields": (_("Profiling fields of the GPU exporter"),),
    "coverage.hosts": (_("Hosts joined to workers"),),
    "coverage.commands": (pgettext_lazy("coverage", "Commands"),),
    "finding.zero_under_load": (_("{signal}: not credible"),),
    "finding.frozen": (
        _("{signal} of {worker}: not credible"), _("{signal}: not credible"),
    ),
    "finding.looks_like_percent": (
        _("{signal} of {worker}: not credible"), _("{signal}: not credible"),
    ),
    "finding.ratio_out_of_range": (
        _("{signal} of {worker}: not credible"), _("{signal}: not credible"),
    ),
    "finding.cached_above_prompt": (_("{signal}: not credible"),),
    "finding.ttft_above_e2e": (_("{signal}: not credible"),),
    "finding.accepted_not_ended": (_("{signal}: not credible"),),
    "finding.completions_disagree": (_("{signal}: not credible"),),
    "finding.prompt_tokens_disagree": (_("{signal}: not credible"),),
    "finding.counter_stands": (_("{signal}: not credible"),),
    "finding.down_while_serving": (_("{worker} serves, its metrics do not answer"),),
    "finding.stale_kv_served": (_("{worker}: expired KV was read"), _("Expired KV was read")),
    "finding.decode_prefills": (_("{worker}: decode worker that prefills"),),
    "finding.prefill_decodes": (_("{worker}: prefill worker that decodes"),),
    "finding.label_contradicts": (_("{worker}: a label names another role"),),
    "finding.behaviour_contradicts": (_("{worker}: works in another role"),),
}  # fmt: skip

#: `CoverageLineView.detail`; those of roles are banners too.
DETAILS: Final[Sentences] = {
    "found.signal": (_("{have} of {of} workers, {age_s} old"), _("{age_s} old")),
    "found.counted": (pgettext_lazy("coverage", "{have} of {of}"),),
    "found.commands": (_("through {name}"),),
    "found.part_of_roles": (_("only {roles}; not exported by {without_roles}"), _("only {roles}")),
    "found.near": (_("not found; nearest name there: {metric}"),),
    "found.nothing": (_("not found"),),
    "found.unavailable": (_("this engine has none"),),
    "found.buckets_at": (_("a bound lies at the objective of {threshold}"),),
    "found.buckets_between": (
        _("the objective of {threshold} lies between the bounds {first} and {second}"),
        _("the objective of {threshold} lies below the first bound, {second}"),
    ),
    "found.buckets_beyond": (_("largest bound {value}; the objective is {threshold}"),),
    "found.zero_under_load": (
        Plural(
            lambda n: ngettext(
                "reads 0 while requests' own times say that {needed} is there",
                "reads 0 while requests' own times say that {needed} are there",
                n,
            ),
            "needed",
        ),
    ),
    "found.frozen": (_("stands at {value} to the last digit while tokens are made"),),
    "found.looks_like_percent": (_("reads {value}: percent where a share is expected"),),
    "found.ratio_out_of_range": (_("reads {value}, which is no share"),),
    "found.cached_above_prompt": (_("{before} cached of {after} prompt tokens"),),
    "found.ttft_above_e2e": (_("mean TTFT {first} is above the mean of whole requests, {second}"),),
    "found.accepted_not_ended": (_("{total} accepted, {inside} ended, {running} in flight"),),
    "found.completions_disagree": (_("{before} ended for users, {after} at decode workers"),),
    "found.prompt_tokens_disagree": (
        _("{before} prompt tokens at the front end, {after} at prefill"),
    ),
    "found.counter_stands": (_("does not move while {inside} requests ended"),),
    "found.down_while_serving": (_("the router goes on sending requests there"),),
    "found.stale_kv_served": (
        _("{worker} was asked {count} times for KV whose lease had run out: answers may be wrong."),
        _("KV whose lease had run out was read: answers may be wrong."),
    ),
    "found.decode_prefills": (
        _("Decode worker {worker} computes {share} of its prompt tokens itself, since {since}."),
        _("Decode worker {worker} computes prompt tokens itself."),
    ),
    "found.prefill_decodes": (
        _("Prefill worker {worker} makes whole answers, since {since}."),
        _("Prefill worker {worker} makes whole answers."),
    ),
    "found.label_contradicts": (
        _("Label {name} of {worker} says {other_role}, our inventory {role}, since {since}."),
        _("A label of {worker} contradicts its role."),
    ),
    "found.behaviour_contradicts": (
        _("{worker} works as {other_role}, our inventory says {role}, since {since}."),
        _("{worker} works in another role than our inventory says."),
    ),
}

#: `CoverageLineView.effect`.
EFFECTS: Final[Sentences] = {
    "effect_missing.ttft": (_("What users wait for is not seen; no TTFT objective."),),
    "effect_missing.tpot": (_("How fast answers stream is not seen; no TPOT objective."),),
    "effect_missing.requests": (_("Demand is not seen; the planner cannot size."),),
    "effect_missing.completions": (_("Completed requests are not counted; no error rate."),),
    "effect_missing.input_tokens": (_("Prefill work and its cost are not known."),),
    "effect_missing.output_tokens": (_("No cost per token."),),
    "effect_missing.waiting": (_("Queues are not shown."),),
    "effect_part.waiting": (_("The queue of that pool is not shown."),),
    "effect_missing.running": (_("Load of workers is not shown."),),
    "effect_part.running": (_("The load of that pool is not shown."),),
    "effect_missing.kv_used": (_("Memory limits are not seen: no KV cache diagnosis."),),
    "effect_part.kv_used": (_("The memory of that pool is not shown."),),
    "effect_missing.queue_time": (_("The path shows queue and prefill together."),),
    "effect_part.queue_time": (_("The path shows queue and prefill of that pool together."),),
    "effect_missing.kv_transfer": (_("The path shows prefill and transfer together."),),
    "effect.workers_missing": (_("The figure is partial: only growth is advised."),),
    "effect.buckets.beyond": (_("A P95 above {value} cannot be told."),),
    "effect.buckets.between": (_("The share within the objective is a range, not exact."),),
    "effect_missing.roles": (_("Workers without a role are in no pool's figures."),),
    "effect_missing.workers": (_("Figures of their pools are partial: only growth is advised."),),
    "effect_missing.pool_metrics": (_("Nothing is known about this pool; pair decisions hold."),),
    "effect_part.orphans": (_("Their figures are in no pool."),),
    "effect.duplicates.conflict": (_("Its requests and GPUs may count twice."),),
    "effect_missing.devices": (_("No tensor and memory activity, power or energy per token."),),
    "effect_part.device_fields": (_("What a GPU is busy with is not told."),),
    "effect_missing.hosts": (_("A slow host cannot be told from a slow GPU."),),
    "effect_missing.commands": (_("Fulcrum advises; people act by themselves."),),
    "effect.commands.read_only": (_("The backend is only read; people act by themselves."),),
    "effect.commands.unreachable": (_("Reading works, commands do not."),),
    "effect.finding.voids": (_("The figure drives no decision until it is credible."),),
    "effect.finding.told": (_("Its figures are missing though it works."),),
    "effect.finding.stale_kv": (_("Answers that users got may be wrong, without any error."),),
    "effect_role.decode_prefills": (_("KV transfer fails or is skipped; decode loses capacity."),),
    "effect_role.prefill_decodes": (_("The busy share of prefill is not what it seems."),),
    "effect_role.label_contradicts": (_("Its figures may be in the wrong pool."),),
    "effect_role.behaviour_contradicts": (_("Its figures may be in the wrong pool."),),
}

#: `CoverageLineView.fix`.
FIXES: Final[Sentences] = {
    "fix.renamed": (
        _("The metric seems renamed. Add this name to a profile in the overlay folder:"),
    ),
    "fix.enable_metrics": (_("Start the engine with:"),),
    "fix.scrape": (_("Have it scraped:"),),
    "fix.upgrade": (_("Take a release of the engine that exports it."),),
    "fix.role_label": (_("Carry the pod's role label into the metrics:"),),
    "fix.set_buckets": (_("Set the bounds of the histogram:"),),
    "fix.choose_bound": (_("Choose an objective at a bound."),),
    "fix.dcgm_exporter": (_("Run dcgm-exporter on the nodes, with these fields:"),),
    "fix.dcgm_fields": (_("Add these fields to dcgm-exporter's list:"),),
    "fix.node_exporter": (_("Run node_exporter on the nodes:"),),
    "fix.connect_backend": (_("Connect the router or orchestrator."),),
    "fix.write_credential": (_("Store a credential of the backend that may write."),),
    "fix.backend_address": (_("Check the backend's address, credential and network."),),
    "fix.one_address": (_("Register each engine under one address."),),
    "fix.register_worker": (_("Register the worker at the router, or end the target."),),
    "fix.check_metric": (_("Compare the engine's own metrics page with its log."),),
    "fix.check_unit": (_("Give the metric its scale (0.01) in a profile of the overlay folder."),),
    "fix.check_endpoint": (_("Open the worker's metrics page; look at its log for errors."),),
    "fix.check_lease": (
        _("Requests wait too long for decode: add capacity there, or raise kv_lease_duration."),
    ),
    "fix.check_transfer": (_("Look for failed KV transfers; check the network between pools."),),
    "fix.check_role": (_("Correct the role in the inventory or the label."),),
}

TABLE: Final[Sentences] = {**TITLES, **DETAILS, **EFFECTS, **FIXES}
