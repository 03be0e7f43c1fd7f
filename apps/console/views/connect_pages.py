"""What each step of the Connect wizard shows. Nothing here asks the network or writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from apps.accounts import selectors as accounts
from apps.accounts.domain.authorize import Viewer
from apps.fleet import selectors as fleet
from apps.telemetry.domain.draft_coverage import draft_report
from apps.telemetry.domain.found import Discovery
from apps.telemetry.services import connect as services
from apps.telemetry.services import drafts
from apps.telemetry.services.drafts import ConnectDraft
from apps.telemetry.services.source_test import may_connect

from ..connecting import acts, fields
from ..connecting.fields import Chosen, Errors
from ..presenters import connect as presenter
from ..presenters import connect_checks as checks
from ..reader import Reader
from ..viewer import reader_of, viewer_of
from ..wording import connect as words
from ..wording import labels
from .common import private


@dataclass(frozen=True)
class Page:
    """A request with what is known of the draft."""

    request: HttpRequest
    actor: Viewer
    reader: Reader
    draft: ConnectDraft

    @property
    def discovery(self) -> Discovery | None:
        return drafts.found_in(self.draft)

    def chosen(self) -> tuple[tuple[Chosen, ...], Errors]:
        return fields.read_found(self.actor, self.draft)

    def reached(self) -> tuple[str, ...]:
        """The steps that may be opened, in order."""
        open_ones = ["source"]
        test = self.draft.test
        if test is None or test["problem"] or fields.read_source(self.actor, self.draft)[1]:
            return tuple(open_ones)
        if self.draft.found is None:
            return tuple(open_ones)
        open_ones.append("find")
        if "find" not in self.draft.typed or self.chosen()[1]:
            return tuple(open_ones)
        return (*open_ones, "coverage", "prices", "commands")


def page_of(request: HttpRequest) -> Page:
    actor = viewer_of(request)
    if not may_connect(actor):
        raise PermissionDenied
    now = reader_of(request).now
    draft = drafts.draft_of(actor) or drafts.blank(actor, now)
    return Page(request, actor, reader_of(request), draft)


def show(
    page: Page, step: str, errors: Errors | None = None, message: str = "", status: int = 200
) -> HttpResponse:
    text = fields.typed(page.draft, step)
    context: dict[str, Any] = {
        "nav": "fleet",
        "step": step,
        "steps": presenter.steps(step, page.reached()),
        "refused": message,
        "has_draft": page.draft.created_at is not None and bool(page.draft.typed),
        "back": _back(step),
        "hints": words.HINTS,
        **_CONTEXTS[step](page, text, errors or {}),
    }
    return private(render(page.request, f"pages/connect/{step}.html", context, status=status))


def _back(step: str) -> str:
    index = drafts.STEPS.index(step)
    return reverse("connect-step", kwargs={"step": drafts.STEPS[index - 1]}) if index else ""


def _source_context(page: Page, text: Mapping[str, str], errors: Errors) -> dict[str, Any]:
    def one(name: str, default: str = "") -> presenter.Field:
        return presenter.read(name, text, default, errors)

    found = page.draft.test
    return {
        "kind": text.get("kind", "prometheus"),
        "url": one("url"),
        "interval_s": one("interval_s", "15"),
        "instance_label": one("instance_label", "instance"),
        "job_label": one("job_label", "job"),
        "jobs": one("jobs"),
        "addresses": one("addresses"),
        "router_url": one("router_url"),
        "cluster": one("cluster"),
        "cluster_name": one("cluster_name"),
        "cluster_slug": one("cluster_slug"),
        "clusters": services.clusters_to_connect(page.actor),
        "may_create": fields.may_price(page.actor),
        "has_token": "token" in page.draft.sealed,
        "has_router_key": "router_key" in page.draft.sealed,
        "lines": checks.tested(found, page.draft.tested_at, page.reader),
        "is_tested": bool(found and not found["problem"]),
    }


def _find_context(page: Page, text: Mapping[str, str], errors: Errors) -> dict[str, Any]:
    discovery = page.discovery
    if discovery is None:
        return {"cards": ()}
    chosen, _ = page.chosen()
    return {
        "cards": presenter.cards(
            chosen, discovery, text, errors, fields.MAX_SINGLE, _connected(page.actor, discovery)
        ),
        "unread": presenter.unread_lines(discovery.unread),
        "accelerators": list(fleet.accelerators().values_list("slug", "name")),
        "environments": [(e, labels.word(labels.ENVIRONMENTS, e)) for e in fields.environments()],
        "teams": list(accounts.teams_for(page.actor)),
        "found_at": page.reader.time(page.draft.found_at) if page.draft.found_at else "",
    }


def _connected(actor: Viewer, discovery: Discovery) -> dict[str, str]:
    """Worker address -> the visible deployment that has it already."""
    urls = {worker.url for item in discovery.deployments for worker in item.workers}
    return {
        url: slug
        for url, slug in fleet.workers_for(actor).values_list("url", "deployment__slug")
        if url in urls
    }


def _coverage_context(page: Page, text: Mapping[str, str], errors: Errors) -> dict[str, Any]:
    chosen, _ = page.chosen()
    defaults = acts.defaults_of_prices(page.reader.now, page.discovery, chosen)
    aims, _ = fields.read_prices(page.draft, chosen, defaults)
    shown = []
    for item in chosen:
        if item.is_included:
            report = draft_report(
                item.found,
                presenter.draft_workers(item),
                ladders=acts.ladders_of(page.discovery, item),
                objectives=aims.objectives.get(item.key, {}),
                can_act=acts.passed(page.draft, item.key, page.reader.now),
            )
            shown.append(checks.coverage_card(item.name, report, page.reader))
    at = page.draft.found_at
    return {"cards": shown, "found_at": page.reader.time(at) if at else ""}


def _prices_context(page: Page, text: Mapping[str, str], errors: Errors) -> dict[str, Any]:
    chosen, _ = page.chosen()
    included = [item for item in chosen if item.is_included]
    defaults = acts.defaults_of_prices(page.reader.now, page.discovery, included)
    names = dict(fleet.accelerators().values_list("slug", "name"))

    def one(name: str) -> presenter.Field:
        return presenter.read(name, text, defaults.get(name, ""), errors)

    aims, _ = fields.read_prices(page.draft, included, defaults)
    return {
        "prices": [
            (names.get(slug, slug), one(f"price-{slug}"))
            for slug in fields.accelerators_of(included)
        ],
        "may_price": fields.may_price(page.actor),
        "currency": acts.currency(),
        "objectives": [
            presenter.ObjectiveRow(
                title=item.name,
                ttft=one(f"ttft-{item.key}"),
                tpot=one(f"tpot-{item.key}"),
                warnings=checks.bucket_lines(
                    acts.ladders_of(page.discovery, item),
                    aims.objectives.get(item.key, {}),
                    page.reader,
                ),
            )
            for item in included
        ],
    }


def _commands_context(page: Page, text: Mapping[str, str], errors: Errors) -> dict[str, Any]:
    chosen, _ = page.chosen()
    router = fields.typed(page.draft, "source").get("router_url", "")
    shown = []
    for item in chosen:
        if not item.is_included:
            continue
        key = item.key
        adapter = presenter.read(f"adapter-{key}", text, "noop", errors)
        passed = acts.passed(page.draft, key, page.reader.now)
        mode = presenter.read(f"mode-{key}", text, "observe", errors)
        shown.append(
            presenter.CommandCard(
                key=key,
                title=item.name,
                adapter=adapter,
                address=presenter.read(f"address-{key}", text, router, errors),
                flip=presenter.read(f"flip-{key}", text, "", errors),
                mode_error=mode.error,
                has_control=f"control:{key}" in page.draft.sealed,
                has_engine=f"engine:{key}" in page.draft.sealed,
                needs=checks.needs(),
                modes=checks.modes(mode.value, item.environment, passed),
                manifests=checks.manifests(item.found.namespace),
                run=checks.dry_run_line(page.draft.dry_runs.get(key), passed, page.reader),
            )
        )
    return {"cards": shown, "adapters": [(a, words.ADAPTERS[a]) for a in acts.ADAPTERS]}


_CONTEXTS: Final[Mapping[str, Callable[[Page, Mapping[str, str], Errors], dict[str, Any]]]] = {
    "source": _source_context,
    "find": _find_context,
    "coverage": _coverage_context,
    "prices": _prices_context,
    "commands": _commands_context,
}
