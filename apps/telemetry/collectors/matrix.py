"""The answer of a Prometheus to a range selector, read straight into numbers.

A large fleet's tick is some hundred thousand series. Most of the time went into making objects of
label sets that were the same a tick ago, and texts of numbers; so a label set stays the text that
came until it is needed, and what it says is remembered by that text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from apps.engines.exposition import Labels as LabelPairs

#: Label sets that are remembered, about a kilobyte each: a target has a dozen.
_KNOWN: Final = 100_000
_LE: Final = b'"le":"'

#: One stored copy of a target: spelling of its address, job, replica.
Origin = tuple[str, ...]


class Series(msgspec.Struct, frozen=True, gc=False):
    """One series: the JSON text of its label set, and (Unix time, value) ascending. Native
    histograms come as `histograms` (not read further), and then `values` may be None."""

    metric: msgspec.Raw
    values: list[tuple[float, float]] | None = None
    histograms: Any = None

    @property
    def labels(self) -> dict[str, str]:
        """The label set; raises msgspec.DecodeError if it is none."""
        return msgspec.json.decode(self.metric, type=dict[str, str])


class _Text(msgspec.Struct):
    metric: msgspec.Raw
    values: list[tuple[float, str]] | None = None
    histograms: Any = None


class _Numbers(msgspec.Struct):
    result: list[Series]


class _Texts(msgspec.Struct):
    result: list[_Text]


class _Answer(msgspec.Struct):
    data: _Numbers
    warnings: list[Any] | None = None


class _TextAnswer(msgspec.Struct):
    data: _Texts
    warnings: list[Any] | None = None


# Values come as texts; not strict, they are read as the numbers they are.
_NUMBERS: Final = msgspec.json.Decoder(_Answer, strict=False)
_TEXTS: Final = msgspec.json.Decoder(_TextAnswer)


def parse(body: bytes) -> dict[str, Any]:
    """The answer as `{"data": {"result": [Series]}, "warnings": [...]}`. Raises ValueError."""
    try:
        found = _NUMBERS.decode(body)
        return {"data": {"result": found.data.result}, "warnings": found.warnings}
    except msgspec.ValidationError:
        # "+Inf" is no number to the decoder, but it is one of a Prometheus'.
        pass
    texts = _TEXTS.decode(body)
    result = [
        Series(
            item.metric,
            None if item.values is None else [(at, float(text)) for at, text in item.values],
            item.histograms,
        )
        for item in texts.data.result
    ]
    return {"data": {"result": result}, "warnings": texts.warnings}


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """Whose series it is: the text of its instance label, where it comes from, and the exporter's
    own labels. Compared as an object: `identity` gives the same one for the same text."""

    instance: str
    labels: LabelPairs
    origin: Origin


def common_start(answer: Sequence[Series]) -> bytes:
    """What the label sets of one name start with: the name, which says nothing of whose they are
    (without it, one target's metrics have few different texts)."""
    text = bytes(answer[0].metric) if answer else b""
    if not text.startswith(b'{"__name__":"'):
        return b""
    return text[: text.find(b'",') + 2]


def without_bound(text: bytes) -> tuple[bytes, str]:
    """The text of a bucket's label set with an empty bound, and its bound ("" without one). Raises
    msgspec.DecodeError."""
    at = text.find(_LE)
    if at < 0:  # written with spaces, or there is none
        labels = msgspec.json.decode(_whole(text), type=dict[str, str])
        edge = labels.pop("le", "")
        return msgspec.json.encode(labels), edge
    # A quote inside a label's value is escaped, so what was found is the label.
    start = at + len(_LE)
    end = text.find(b'"', start)
    return text[:start] + text[end:], text[start:end].decode()


def _whole(text: bytes) -> bytes:
    return text if text.startswith(b"{") else b"{" + text


@lru_cache(maxsize=_KNOWN)
def identity(text: bytes, instance_label: str, origin_labels: tuple[str, ...]) -> Identity:
    """What a label set says; `text` may lack its common start. Raises msgspec.DecodeError."""
    metric = msgspec.json.decode(_whole(text), type=dict[str, str])
    metric.pop("__name__", None)
    pairs = {name: value for name, value in metric.items() if value and name not in origin_labels}
    for name in [name for name in pairs if name.startswith("exported_")]:
        # A target's label won over the exporter's own; profiles mean the exporter's.
        pairs[name.removeprefix("exported_")] = pairs.pop(name)
    return Identity(
        metric.get(instance_label, ""),
        tuple(sorted(pairs.items())),
        tuple(metric.get(name, "") for name in origin_labels),
    )
