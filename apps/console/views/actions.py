"""Actions: POST only, CSRF, one service each.

A refusal shows the same page with the fresh state and the HTTP status of the refusal.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from .. import acts
from ..acts import Refused
from ..viewer import reader_of, viewer_of
from .common import safe_next, signed_in, text_field, whole_number
from .pages import render_command, render_deployment, render_review


@require_POST
@signed_in
def apply(request: HttpRequest, number: str) -> HttpResponse:
    """Propose the reviewed plan: the revision and the hash the person saw go with it."""
    try:
        command = acts.propose(
            actor=viewer_of(request),
            now=reader_of(request).now,
            recommendation=number,
            expected_revision=whole_number(request, "expected_revision"),
            plan_hash=text_field(request, "plan_hash", 128),
            idempotency_key=text_field(request, "idempotency_key", 64),
            note=text_field(request, "note"),
        )
    except Refused as refused:
        return render_review(request, number, refused)
    return redirect("command", number=command)


@require_POST
@signed_in
def dismiss(request: HttpRequest, number: str) -> HttpResponse:
    try:
        acts.dismiss(
            actor=viewer_of(request),
            now=reader_of(request).now,
            recommendation=number,
            reason=text_field(request, "reason"),
        )
    except Refused as refused:
        return render_review(request, number, refused)
    return redirect(safe_next(request, reverse("review", kwargs={"number": number})))


@require_POST
@signed_in
def approve(request: HttpRequest, number: str) -> HttpResponse:
    try:
        acts.approve(
            actor=viewer_of(request),
            now=reader_of(request).now,
            number=number,
            plan_hash=text_field(request, "plan_hash", 128),
            reason=text_field(request, "reason"),
        )
    except Refused as refused:
        return render_command(request, number, refused)
    return redirect("command", number=number)


@require_POST
@signed_in
def reject(request: HttpRequest, number: str) -> HttpResponse:
    try:
        acts.reject(
            actor=viewer_of(request),
            now=reader_of(request).now,
            number=number,
            reason=text_field(request, "reason"),
        )
    except Refused as refused:
        return render_command(request, number, refused)
    return redirect("command", number=number)


@require_POST
@signed_in
def cancel(request: HttpRequest, number: str) -> HttpResponse:
    try:
        acts.cancel(
            actor=viewer_of(request),
            now=reader_of(request).now,
            number=number,
            reason=text_field(request, "reason"),
        )
    except Refused as refused:
        return render_command(request, number, refused)
    return redirect("command", number=number)


@require_POST
@signed_in
def rollback(request: HttpRequest, number: str) -> HttpResponse:
    """Roll back by a new command, whose page comes next."""
    try:
        command = acts.rollback(
            actor=viewer_of(request),
            now=reader_of(request).now,
            number=number,
            reason=text_field(request, "reason"),
        )
    except Refused as refused:
        return render_command(request, number, refused)
    return redirect("command", number=command)


@require_POST
@signed_in
def kill_switch(request: HttpRequest, slug: str) -> HttpResponse:
    """Stop all commands of a deployment, or allow them again."""
    try:
        acts.set_kill_switch(
            actor=viewer_of(request),
            now=reader_of(request).now,
            slug=slug,
            on=request.POST.get("on") == "1",
            reason=text_field(request, "reason"),
        )
    except Refused as refused:
        return render_deployment(request, slug, refused)
    return redirect("deployment", slug=slug)
