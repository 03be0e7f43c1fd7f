"""The Connect wizard in words: steps, test, findings, coverage, prices, commands. Plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.accounts.domain.authorize import Viewer
from apps.telemetry.domain.draft_coverage import DraftWorker
from apps.telemetry.domain.found import Discovery, FoundGroup, FoundWorker, Unread
from apps.telemetry.services.source_test import may_connect

from ..connecting.fields import Chosen, ChosenGroup, Errors, worker_field
from ..wording import connect as words
from ..wording import labels
from ..wording.kinds import join
from .connect_checks import Line, ModeOption, engine


@dataclass(frozen=True, slots=True)
class StepLink:
    number: int
    key: str
    name: str
    link: str
    is_current: bool
    is_done: bool


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name, the text in it, and what is wrong with it."""

    name: str
    value: str
    error: str = ""

    @property
    def error_id(self) -> str:
        return f"e-{self.name}" if self.error else ""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    worker: FoundWorker
    field: Field
    against: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    title: str
    why: str
    is_guess: bool
    role: Field
    roles: tuple[tuple[str, str], ...]
    accelerator: Field
    gpus: Field
    workers: tuple[WorkerRow, ...]
    names: str
    against: str


@dataclass(frozen=True, slots=True)
class DeploymentCard:
    key: str
    title: str
    sub: str
    known: str
    is_included: bool
    name: Field
    slug: Field
    environment: Field
    team: Field
    router: Field
    frontend: Field
    routers: tuple[str, ...]
    frontends: tuple[str, ...]
    groups: tuple[GroupRow, ...]


@dataclass(frozen=True, slots=True)
class Button:
    """A link, or the reason in words why it is not for this person."""

    link: str
    reason: str


def connect_button(viewer: Viewer) -> Button:
    """[Connect a cluster] of the fleet page."""
    if may_connect(viewer):
        return Button(reverse("connect"), "")
    return Button("", str(words.BUTTON["not_allowed"]))


def steps(current: str, reached: Sequence[str]) -> tuple[StepLink, ...]:
    """The five steps; those that are not reached have no link."""
    return tuple(
        StepLink(
            number=number,
            key=key,
            name=str(name),
            link=reverse("connect-step", kwargs={"step": key}) if key in reached else "",
            is_current=key == current,
            is_done=key in reached
            and key != current
            and list(reached).index(key) + 1 < len(reached),
        )
        for number, (key, name) in enumerate(words.STEPS.items(), 1)
    )


def why(group: FoundGroup) -> str:
    """The evidence of a guessed role."""
    return words.say(
        words.ROLE_SOURCES, group.role_source, name=group.evidence, value=group.evidence_value
    )


def read(name: str, text: Mapping[str, str], default: str, errors: Errors) -> Field:
    """A field as typed, else its default, with its error in words."""
    code = errors.get(name, "")
    return Field(name, text.get(name, default), words.say(words.ERRORS, code) if code else "")


def cards(
    chosen: Sequence[Chosen],
    discovery: Discovery,
    text: Mapping[str, str],
    errors: Errors,
    max_single: int,
    connected: Mapping[str, str],
) -> tuple[DeploymentCard, ...]:
    edges = {e.instance: e.scope for d in discovery.deployments for e in d.edges}
    scopes = {
        scope: tuple(sorted(name for name, has in edges.items() if has == scope))
        for scope in ("router", "frontend")
    }
    total = sum(len(d.workers) for d in discovery.deployments)
    found = []
    for item in chosen:
        key = item.key
        mine = {e.scope: e.instance for e in reversed(item.found.edges)}
        count = len(item.found.workers)
        found.append(
            DeploymentCard(
                key=key,
                title=item.found.model or _("model not named"),
                sub=_placed(item.found.namespace, count),
                known=_known(item, connected),
                is_included=item.is_included,
                name=read(f"name-{key}", text, item.found.name, errors),
                slug=read(f"slug-{key}", text, item.found.slug, errors),
                environment=read(f"environment-{key}", text, "production", errors),
                team=read(f"team-{key}", text, "", errors),
                router=read(f"router-{key}", text, mine.get("router", ""), errors),
                frontend=read(f"frontend-{key}", text, mine.get("frontend", ""), errors),
                routers=scopes["router"],
                frontends=scopes["frontend"],
                groups=tuple(
                    _group(group, text, errors, total <= max_single) for group in item.groups
                ),
            )
        )
    return tuple(found)


def _group(
    group: ChosenGroup, text: Mapping[str, str], errors: Errors, is_single: bool
) -> GroupRow:
    found = group.found
    count = len(found.workers)
    roles = [("prefill", ""), ("decode", ""), ("mixed", "")]
    if found.role and found.role not in dict(roles):
        roles.append((found.role, ""))
    options = [(code, labels.role_title(code)) for code, _none in roles]
    return GroupRow(
        title=ngettext("{count} {engine} worker", "{count} {engine} workers", count).format(
            count=count, engine=engine(found.profile)
        ),
        why=why(found),
        is_guess=found.role_source in ("behaviour", "unknown"),
        role=read(f"role-{found.key}", text, found.role, errors),
        roles=(*options, ("none", _("leave out"))),
        accelerator=read(f"accelerator-{found.key}", text, found.accelerator, errors),
        gpus=read(f"gpus-{found.key}", text, found.devices or "", errors),
        workers=tuple(
            WorkerRow(
                worker=worker,
                field=read(worker_field(worker), text, "", errors),
                against=_("contradicted by {evidence}").format(evidence=join(worker.against))
                if worker.against
                else "",
            )
            for worker in found.workers
            if is_single
        ),
        names=join([worker.name for worker in found.workers[:6]])
        + (" …" if len(found.workers) > 6 else ""),
        against=_against(found),
    )


def _known(item: Chosen, connected: Mapping[str, str]) -> str:
    """Says that workers of it are connected already (`connected`: worker address -> deployment)."""
    slugs = {connected[w.url] for w in item.found.workers if w.url in connected}
    if not slugs:
        return ""
    return _("Its workers are connected already, as {names}.").format(names=join(sorted(slugs)))


def _against(found: FoundGroup) -> str:
    """Workers of a group whose labels or traffic say another role."""
    named = [worker for worker in found.workers if worker.against]
    if not named:
        return ""
    return ngettext(
        "{names} has evidence for another role: {evidence}",
        "{count} workers have evidence for another role, such as {names}: {evidence}",
        len(named),
    ).format(count=len(named), names=named[0].name, evidence=join(named[0].against))


def unread_lines(rows: Sequence[Unread]) -> list[Line]:
    lines = []
    for row in rows:
        if row.reason == "too_many":
            said = ngettext(
                "{count} more deployment was found than one draft holds",
                "{count} more deployments were found than one draft holds",
                row.count,
            ).format(count=row.count)
            more = _("Connect these first, or limit the search to some jobs.")
            lines.append(Line("warn", said, f"{join(row.examples)} … {more}"))
            continue
        head = ngettext(
            "{job}: {count} target, {reason}", "{job}: {count} targets, {reason}", row.count
        ).format(
            job=row.job or _("no job"), count=row.count, reason=words.say(words.UNREAD, row.reason)
        )
        status = {"down": "warn", "hardware": "ok"}.get(row.reason, "info")
        more = " …" if row.count > len(row.examples) else ""
        detail = f" · {row.error}" if row.error else ""
        lines.append(Line(status, head, join(row.examples) + more + detail))
    return lines


def draft_workers(chosen: Chosen) -> list[DraftWorker]:
    """The workers of a draft with the roles that were chosen."""
    return [
        DraftWorker(worker, role, worker.devices is not None)
        for group in chosen.groups
        for role, workers in group.workers.items()
        for worker in workers
    ]


@dataclass(frozen=True, slots=True)
class ObjectiveRow:
    title: str
    ttft: Field
    tpot: Field
    warnings: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class CommandCard:
    key: str
    title: str
    adapter: Field
    address: Field
    flip: Field
    mode_error: str
    has_control: bool
    has_engine: bool
    needs: tuple[tuple[str, str], ...]
    manifests: tuple[tuple[str, str], ...]
    modes: tuple[ModeOption, ...]
    run: Line | None


def _placed(namespace: str, count: int) -> str:
    if not namespace:
        return ngettext(
            "no namespace · {count} worker", "no namespace · {count} workers", count
        ).format(count=count)
    return ngettext(
        "namespace {namespace} · {count} worker", "namespace {namespace} · {count} workers", count
    ).format(namespace=namespace, count=count)
