"""Rows of the fleet's table, and pages that die with their request."""

from __future__ import annotations

import gc
import weakref
from dataclasses import fields
from typing import Any

from django.test import RequestFactory
from django.utils import translation

from apps.console.presenters.fleet import RowShown
from apps.console.presenters.svg import Segment
from apps.console.templatetags.fleet import fleet_rows
from apps.console.views.common import rendered
from apps.console.wording import labels

HOSTILE = "<i>\"'&"


def _row(**changes: Any) -> RowShown:
    """A row whose every text is hostile, but for what Fulcrum itself chooses."""
    values: dict[str, Any] = {field.name: HOSTILE for field in fields(RowShown)}
    values |= {
        "slug": "rag", "status": "ok", "ttft_tone": "", "tpot_tone": "c-warn", "good_tone": "",
        "budget_tone": "", "split": (Segment("0%", "60%", "red"), Segment("60%", "40%", "blue")),
        "busy": (("30%", "red"), ("", "blue")), "is_stale": False, "next_link": "/commands/C-1/",
    }  # fmt: skip
    return RowShown(**(values | changes))


def test_every_text_of_a_row_is_escaped() -> None:
    made = fleet_rows([_row()])
    assert "<i>" not in made
    # All texts but the note, which the table does not show.
    escaped = "&lt;i&gt;&quot;&#x27;&amp;"
    assert made.count(escaped) == 17
    assert '<a href="/deployments/rag/" data-open>' in made


def test_a_row_shows_its_bars_its_age_and_its_next_step() -> None:
    made = fleet_rows([_row(is_stale=True), _row(slug="chat", next_link="", next_step="Wait")])
    first, second = made.split("</tr>\n")[:2]
    assert 'id="row-rag" class="is-old" data-row' in first
    assert 'id="row-chat" data-row' in second
    assert '<rect x="60%" y="5" width="40%" height="8" rx="2" fill="blue"/>' in first
    # A share that is not known has its track only.
    assert first.count('height="7"') == 3
    assert '<a class="lnk" href="/commands/C-1/">' in first
    assert second.endswith('<td class="c-next">Wait</td>')


def test_words_follow_the_language_of_each_request() -> None:
    with translation.override("en"):
        assert labels.word(labels.STATUSES, "warn") == "Warning"
    with translation.override("zh-hans"):
        assert labels.word(labels.STATUSES, "warn") == str(labels.STATUSES["warn"])
    with translation.override("en"):
        assert labels.word(labels.STATUSES, "warn") == "Warning"


class _Shown:
    """Something that a page shows."""


def test_a_page_leaves_nothing_for_the_garbage_collector() -> None:
    shown = _Shown()
    alive = weakref.ref(shown)
    request = RequestFactory().get("/fleet/")
    gc.disable()
    try:
        answer = rendered(request, "components/_empty.html", {"shown": shown})
        del shown
        assert alive() is None
    finally:
        gc.enable()
    assert answer.status_code == 200
