"""The Connect wizard: five steps. Reading changes nothing; only explicit acts ask the network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts.domain.authorize import NotAllowed
from apps.common.fetch import FetchError
from apps.cost.services import InvalidPrice, PriceOverlap
from apps.fleet.services.inventory import LooseningNeedsApproval
from apps.telemetry.services import connect as services
from apps.telemetry.services import drafts
from apps.telemetry.services.drafts import ConnectDraft
from apps.telemetry.services.source_test import plain_address

from ..connecting import acts, fields
from ..connecting.fields import Errors
from ..wording import connect as words
from .common import signed_in
from .connect_pages import Page, page_of, show

#: Names of fields that a step keeps: a word, and for some the key of what it is about.
_FIELD: Final = re.compile(r"[a-z_]{1,24}(?:-[a-z0-9][a-z0-9-]{0,62})?")
_ADDRESSES: Final = re.compile(r"(?:url|router_url|address-[0-9a-f]{10})")
_NOT_KEPT: Final = frozenset({"csrfmiddlewaretoken", "do"})
#: Fields that are sealed: name in the form -> name of the secret.
_SECRETS: Final = re.compile(r"(?:token|router_key|(?:control|engine)-[0-9a-f]{10})")


@require_safe
@signed_in
def start(request: HttpRequest) -> HttpResponse:
    """Where the person left off."""
    page = page_of(request)
    reached = page.reached()
    step = page.draft.step if page.draft.step in reached else reached[-1]
    return redirect("connect-step", step=step)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def step(request: HttpRequest, step: str) -> HttpResponse:
    if step not in drafts.STEPS:
        raise Http404(step)
    page = page_of(request)
    if request.method == "POST":
        return _act(page, step)
    reached = page.reached()
    if step not in reached:
        return redirect("connect-step", step=reached[-1])
    return show(page, step)


def _act(page: Page, step: str) -> HttpResponse:
    """Keep what was typed, then do what the button says."""
    do = page.request.POST.get("do", "save")
    if do == "restart":
        drafts.discard(actor=page.actor)
        return redirect("connect-step", step="source")
    page, notice = _typed(page, step)
    act = _ACTS.get((step, do.partition(":")[0]))
    if act is not None:
        errors, message = act(page, do.partition(":")[2])
    elif do in ("next", "save"):
        errors, message = {}, ""
    else:
        raise Http404(do)
    page = page_of(page.request)
    if errors or message:
        return show(page, step, errors, message, status=422)
    target = step
    if do == "next":
        order = drafts.STEPS
        target = order[min(order.index(step) + 1, len(order) - 1)]
        if target not in page.reached():
            return show(page, step, {}, str(words.ERRORS["fields_wrong"]), status=422)
        drafts.go_to(actor=page.actor, now=page.reader.now, step=target)
    if do == "finish":
        return redirect("fleet")
    if notice:
        return show(page, step, {}, notice, status=422)
    return redirect("connect-step", step=target)


def _typed(page: Page, step: str) -> tuple[Page, str]:
    """Store the fields of a step; secrets are sealed, addresses lose what must not be kept."""
    text: dict[str, str] = {}
    secrets: dict[str, str] = {}
    notice = ""
    for name, raw in page.request.POST.items():
        # PostgreSQL stores no NUL in texts.
        value = str(raw).replace("\0", "")
        if name in _NOT_KEPT:
            continue
        if _SECRETS.fullmatch(name):
            secrets[name.replace("-", ":")] = value.strip()[: drafts.MAX_FIELD]
        elif name.startswith("forget"):
            continue
        elif _ADDRESSES.fullmatch(name):
            text[name] = plain_address(value)
            if _holds_more(value):
                notice = str(words.ERRORS["password_removed"])
        elif name == "addresses":
            lines = [plain_address(line) for line in value.split()]
            text[name] = "\n".join(lines)
            if _holds_more(value):
                notice = str(words.ERRORS["password_removed"])
        elif _FIELD.fullmatch(name):
            text[name] = value[: drafts.MAX_FIELD]
    _unticked(page, step, text)
    forget = _forgotten(page, step, text, secrets)
    drafts.type_in(
        actor=page.actor,
        now=page.reader.now,
        step=step,
        fields=text,
        secrets=secrets,
        forget=forget,
    )
    if step == "source" and _is_other_source(page.draft, text, secrets):
        drafts.drop_test(actor=page.actor, now=page.reader.now)
    return page_of(page.request), notice


def _holds_more(address: str) -> bool:
    """True if an address was typed with what is not kept: a user, a password, a query."""
    return any(sign in address for sign in "@?#")


def _unticked(page: Page, step: str, text: dict[str, str]) -> None:
    """A box that is not ticked is not sent: keep that it is not."""
    discovery = page.discovery
    keys = [item.key for item in discovery.deployments] if discovery else []
    boxes = {"find": "include", "commands": "flip"}
    if step in boxes:
        for key in keys:
            text.setdefault(f"{boxes[step]}-{key}", "")


def _forgotten(
    page: Page, step: str, text: Mapping[str, str], secrets: Mapping[str, str]
) -> list[str]:
    """Secrets that no longer hold: their address changed, or the person takes them back. A secret
    never follows to another host (DESIGN law 14)."""
    before = page.draft.typed.get(step, {})
    gone = [
        name.removeprefix("forget_").replace("-", ":")
        for name in page.request.POST
        if name.startswith("forget_")
    ]
    for field, names in (("url", ("token",)), ("router_url", ("router_key",))):
        if step == "source" and before.get(field, "") != text.get(field, ""):
            gone += names
    if step == "commands":
        for name, value in text.items():
            if name.startswith("address-") and before.get(name, value) != value:
                key = name.removeprefix("address-")
                gone += [f"control:{key}", f"engine:{key}"]
    return [name for name in gone if not secrets.get(name)]


def _is_other_source(
    draft: ConnectDraft, text: Mapping[str, str], secrets: Mapping[str, str]
) -> bool:
    """True if what was tested and found is not what is typed now."""
    before = draft.typed.get("source", {})
    named = ("kind", "url", "addresses", "router_url", "instance_label", "job_label", "jobs")
    return any(secrets.values()) or any(before.get(n, "") != text.get(n, "") for n in named)


Done = tuple[Errors, str]


def _test(page: Page, _key: str) -> Done:
    source, errors = fields.read_source(page.actor, page.draft)
    mine = {name: code for name, code in errors.items() if not name.startswith("cluster")}
    if not mine:
        acts.test(actor=page.actor, now=page.reader.now, draft=page.draft, source=source)
    return mine, ""


def _to_find(page: Page, _key: str) -> Done:
    source, errors = fields.read_source(page.actor, page.draft)
    if errors:
        return errors, str(words.ERRORS["fields_wrong"])
    if page.draft.test is None or page.draft.test["problem"]:
        return {}, str(words.ERRORS["test_first"])
    if page.draft.found is not None:
        return {}, ""
    return _search(page, source)


def _find(page: Page, _key: str) -> Done:
    source, errors = fields.read_source(page.actor, page.draft)
    return ({}, str(words.ERRORS["fields_wrong"])) if errors else _search(page, source)


def _search(page: Page, source: fields.Source) -> Done:
    code = acts.find(actor=page.actor, now=page.reader.now, draft=page.draft, source=source)
    return {}, words.say(words.PROBLEMS, code, status="") if code else ""


def _to_coverage(page: Page, _key: str) -> Done:
    errors = page.chosen()[1]
    return errors, str(words.ERRORS["fields_wrong"]) if errors else ""


def _to_commands(page: Page, _key: str) -> Done:
    chosen, _ = page.chosen()
    defaults = acts.defaults_of_prices(page.reader.now, page.discovery, chosen)
    errors = fields.read_prices(page.draft, chosen, defaults)[1]
    return errors, str(words.ERRORS["fields_wrong"]) if errors else ""


def _dry_run(page: Page, key: str) -> Done:
    chosen, _ = page.chosen()
    item = next((item for item in chosen if item.key == key and item.is_included), None)
    if item is None:
        raise Http404(key)
    errors = acts.read_commands(page.draft, [item], page.reader.now)[1]
    wrong = {name: code for name, code in errors.items() if not name.startswith("mode-")}
    if not wrong:
        acts.dry_run(actor=page.actor, now=page.reader.now, draft=page.draft, chosen=item)
    return wrong, ""


def _finish(page: Page, _key: str) -> Done:
    now = page.reader.now
    source, wrong = fields.read_source(page.actor, page.draft)
    chosen, wrong_found = page.chosen()
    defaults = acts.defaults_of_prices(now, page.discovery, chosen)
    aims, wrong_prices = fields.read_prices(page.draft, chosen, defaults)
    modes, errors = acts.read_commands(page.draft, chosen, now)
    if errors or wrong or wrong_found or wrong_prices:
        return errors, str(words.ERRORS["fields_wrong"])
    if "commands" not in page.reached():
        return {}, str(words.ERRORS["test_first"])
    try:
        acts.finish(
            actor=page.actor,
            now=now,
            draft=page.draft,
            source=source,
            chosen=chosen,
            aims=aims,
            modes=modes,
        )
    except services.ConnectRefused as error:
        said = words.say(words.ERRORS, error.code)
        return {}, f"{error.subject}: {said}" if error.subject else said
    except FetchError:
        return {}, str(words.ERRORS["address_denied"])
    except LooseningNeedsApproval:
        return {}, str(words.ERRORS["mode_needs_second_person"])
    except (PriceOverlap, InvalidPrice):
        return {}, str(words.ERRORS["price_overlap"])
    except NotAllowed:
        return {}, str(words.ERRORS["not_allowed"])
    return {}, ""


_ACTS: Final[Mapping[tuple[str, str], Callable[[Page, str], Done]]] = {
    ("source", "test"): _test,
    ("source", "next"): _to_find,
    ("find", "find"): _find,
    ("find", "next"): _to_coverage,
    ("coverage", "find"): _find,
    ("prices", "next"): _to_commands,
    ("commands", "dry_run"): _dry_run,
    ("commands", "finish"): _finish,
}
