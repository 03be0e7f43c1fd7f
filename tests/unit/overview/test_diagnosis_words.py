"""Every finding of the rules can be shown: codes, figures and comparisons have words."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import translation

from apps.console import wording
from apps.console.reader import Reader
from apps.diagnosis.domain.rules import diagnose
from apps.diagnosis.models import DiagnosisRecord
from apps.overview import diagnosis
from tests.unit.diagnosis.test_rules import AT, TABLE, symptoms


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_every_finding_can_be_said(row: tuple[object, ...], language: str) -> None:
    _, figures, changes, _ = row
    s = symptoms(figures, **changes)  # type: ignore[arg-type]
    found = diagnose(s)
    record = DiagnosisRecord(
        at=AT, window_end=AT, raw_cause=found.cause, cause=found.cause,
        severity=found.severity.value, since=AT - timedelta(minutes=2), sentence=found.sentence,
        params=dict(found.params), evidence=[e.to_json() for e in found.evidence],
        wont_help=found.wont_help, worker=found.worker, role=found.role, busy=s.busy.to_json(),
    )  # fmt: skip
    view = diagnosis.view(
        record, s.figures, s.usual, 2.5, 0.025, AT, 5.0, lambda figure, taken: figure
    )
    reader = Reader(now=AT, zone=ZoneInfo("UTC"))
    with translation.override(language):
        assert wording.heading(view, reader)
        assert len(wording.say(view.sentence, reader)) > 5
        for tile in view.evidence:
            assert wording.labels.word(wording.labels.FIGURES, tile.code)
            if tile.comparison is not None:
                assert wording.say(tile.comparison, reader)
    assert view.cause == found.cause.value
    assert (view.wont_help is None) == (found.cause.value == "balanced")
