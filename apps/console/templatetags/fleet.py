"""The rows of the fleet's table, written in Python.

A row is some forty expressions of a template; two hundred rows of them took longer than everything
else of the page. The words are looked up once for all rows. Every value is escaped here, as the
template would.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html import escape

from django import template
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ..presenters.fleet import RowShown
from .console import status

register = template.Library()

_TRACK = '<rect y="{y}" width="100%" height="7" rx="2" fill="var(--surface-3)"/>'


@dataclass(frozen=True, slots=True)
class _Words:
    """What each row says before its values, where the table is narrow."""

    split: str
    busy: str
    good: str
    cost: str
    budget: str


@register.simple_tag
def fleet_rows(rows: Iterable[RowShown]) -> SafeString:
    """`<tr>` of each row, with the columns of the head in `pages/fleet/_live.html`."""
    words = _Words(
        split=escape(_("Prefill : decode")),
        busy=escape(pgettext("figure", "Busy")),
        good=escape(pgettext("share of good tokens", "Good")),
        cost=escape(_("Per 1M good")),
        budget=escape(pgettext("error budget", "Budget")),
    )
    mark = cache(lambda code, word: status(code, word, "st"))
    return mark_safe("".join(_row(row, words, mark(row.status, row.status_word)) for row in rows))


def _row(row: RowShown, words: _Words, mark: str) -> str:
    e = escape
    link = e(reverse("deployment", kwargs={"slug": row.slug}))
    old = ' class="is-old"' if row.is_stale else ""
    return (
        f'<tr id="row-{e(row.slug)}"{old} data-row>\n'
        f'<td class="c-st">{mark}</td>\n'
        f'<th scope="row" class="c-name"><a href="{link}" data-open>{e(row.name)}</a>'
        f'<span class="m">{e(row.sub)}</span></th>\n'
        f'<td class="c-lim">{e(row.limited_by)}'
        f'<span class="m num">{e(row.limited_detail)}</span></td>\n'
        f'<td class="r c-ttft"><span class="lab">TTFT P95</span>'
        f'<span class="num {row.ttft_tone}">{e(row.ttft)}</span>'
        f'<span class="m num">{e(row.ttft_of)}</span></td>\n'
        f'<td class="r c-tpot"><span class="lab">TPOT P95</span>'
        f'<span class="num {row.tpot_tone}">{e(row.tpot)}</span>'
        f'<span class="m num">{e(row.tpot_of)}</span></td>\n'
        f'<td class="c-split"><span class="lab">{words.split}</span>'
        f'<svg class="mini" role="img" aria-label="{e(row.gpus_label)}" height="18">{_split(row)}'
        f'</svg><span class="m num">{e(row.gpus)}</span></td>\n'
        f'<td class="c-busy"><span class="lab">{words.busy}</span>'
        f'<svg class="mini" role="img" aria-label="{e(row.busy_label)}" height="18">{_busy(row)}'
        f'</svg><span class="m num">{e(row.busy_text)}</span></td>\n'
        f'<td class="r c-good"><span class="lab">{words.good}</span>'
        f'<span class="num {row.good_tone}">{e(row.good)}</span></td>\n'
        f'<td class="r c-cost"><span class="lab">{words.cost}</span>'
        f'<span class="num">{e(row.cost)}</span></td>\n'
        f'<td class="r c-budget"><span class="lab">{words.budget}</span>'
        f'<span class="num {row.budget_tone}">{e(row.budget)}</span></td>\n'
        f'<td class="c-next">{_next(row)}</td></tr>\n'
    )


def _split(row: RowShown) -> str:
    return "".join(
        f'<rect x="{escape(part.x)}" y="5" width="{escape(part.width)}" height="8" rx="2"'
        f' fill="{escape(part.fill)}"/>'
        for part in row.split
    )


def _busy(row: RowShown) -> str:
    parts: list[str] = []
    for index, (width, fill) in enumerate(row.busy):
        y = 10 if index else 1
        parts.append(_TRACK.format(y=y))
        if width:
            parts.append(
                f'<rect y="{y}" width="{escape(width)}" height="7" rx="2" fill="{escape(fill)}"/>'
            )
    return "".join(parts)


def _next(row: RowShown) -> str:
    if row.next_step and row.next_link:
        return f'<a class="lnk" href="{escape(row.next_link)}">{escape(row.next_step)}</a>'
    return escape(row.next_step)
