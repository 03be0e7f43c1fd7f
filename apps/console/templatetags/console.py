"""Template tags: icons, status and phase marks, server-drawn SVG, ages.

Status is always shape and word and colour; machine numbers are never localized.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from ..presenters import svg
from ..wording import labels

register = template.Library()

PHASE_ICONS = {"kv_transfer": "kv", "prefill_and_kv": "prefill", "mixed": "mixed"}


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """A symbol of the page's sprite, hidden from screen readers."""
    return format_html(
        '<svg class="i {}" viewBox="0 0 16 16" aria-hidden="true"><use href="#i-{}"/></svg>',
        css,
        name,
    )


@register.simple_tag
def status(code: str, word: str = "", css: str = "") -> SafeString:
    """The shape of a status with its word for screen readers (the word may stand beside it)."""
    if not code:
        return SafeString("")
    shown = word or labels.word(labels.STATUSES, code)
    return format_html('{}<span class="sr">{}: </span>', icon(code, css), shown)


@register.simple_tag
def phase(code: str) -> SafeString:
    """The icon of a phase or role; its word stands beside it in the text."""
    known = {"queue", "prefill", "kv_transfer", "prefill_and_kv", "decode", "mixed"}
    return icon(PHASE_ICONS.get(code, code) if code in known else "mixed")


@register.simple_tag
def spark(drawn: svg.Spark | None, tone: str = "", is_old: bool = False) -> SafeString:
    """A sparkline from zero with the objective as a dashed line; gaps stay gaps."""
    if drawn is None or drawn.is_empty:
        return SafeString("")
    colour = "var(--unknown)" if is_old else "var(--crit)" if tone == "c-crit" else "var(--ink-3)"
    objective = (
        format_html('<path d="M0 {}H160" class="sp-o"/>', drawn.objective)
        if drawn.objective
        else ""
    )
    lines = format_html_join(
        "", '<polyline points="{}" stroke="{}"/>', ((line, colour) for line in drawn.lines)
    )
    dots = format_html_join(
        "",
        '<path d="M{} {}h.1" stroke="{}" class="sp-d"/>',
        ((x, y, colour) for x, y in drawn.dots),
    )
    tail = format_html('<path d="{}" class="sp-t"/>', drawn.tail) if drawn.tail else ""
    return format_html(
        '<svg class="spark" viewBox="0 0 160 24" preserveAspectRatio="none" aria-hidden="true">'
        "{}{}{}{}</svg>",
        objective,
        lines,
        dots,
        tail,
    )


@register.simple_tag
def bar(segments: Sequence[svg.Segment], height: int = 22, label: str = "") -> SafeString:
    """A stacked bar of segments in percent of its width."""
    parts = format_html_join(
        "",
        '<rect x="{}" width="{}" height="{}" rx="2" fill="{}"/>',
        ((part.x, part.width, height, part.fill) for part in segments),
    )
    return format_html(
        '<svg class="bar" height="{}" role="img" aria-label="{}">{}</svg>', height, label, parts
    )


@register.simple_tag
def meter(width: str, fill: str, label: str, usual: str = "", limit: str = "") -> SafeString:
    """A meter with a tick for usual and a mark for the limit."""
    tick = (
        format_html('<rect x="{}" width="2" y="3" height="10" fill="var(--surface)"/>', usual)
        if usual
        else ""
    )
    mark = (
        format_html(
            '<svg x="{}" class="lim"><path d="M-5 0h10L0 5z"/>'
            '<rect x="-1" y="3" width="2" height="10"/></svg>',
            limit,
        )
        if limit
        else ""
    )
    return format_html(
        '<svg class="meter" height="16" role="img" aria-label="{}">'
        '<rect y="3" width="100%" height="10" rx="3" fill="var(--surface-3)"/>'
        '<rect y="3" width="{}" height="10" rx="3" fill="{}"/>{}{}</svg>',
        label,
        width,
        fill,
        tick,
        mark,
    )


@register.simple_tag(takes_context=True)
def age(context: dict[str, Any]) -> SafeString:
    """An element that app.js fills with the age of the sample (never of the page refresh)."""
    return format_html('<span data-age="{}"></span>', context.get("as_of", ""))


@register.filter
def machine(value: float) -> SafeString:
    """A number for SVG, data attributes and scripts: never localized."""
    return mark_safe(svg.number(float(value)))
