"""JSON on the wire: what is sent never holds NaN or a number a client would round; what is read is
bounded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import IO, Any, Final

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer
from rest_framework.utils.encoders import JSONEncoder

#: The largest request body, in bytes. The largest meaningful one is a few kilobytes.
MAX_BODY: Final = 256 * 1024
#: Integers beyond this lose digits in readers that hold numbers as doubles (RFC 8259 §6).
MAX_SAFE_INTEGER: Final = 2**53 - 1


def tame(value: Any) -> Any:
    """The same data without NaN or infinity (null: unknown); decimals and big integers are strings
    without an exponent."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):  # bool is small enough
        return value if abs(value) <= MAX_SAFE_INTEGER else str(value)
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else None
    if isinstance(value, str):
        # A lone surrogate cannot be written as UTF-8; it can only come from a request.
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {str(tame(key)): tame(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [tame(item) for item in value]
    return value


def dump(data: Any) -> bytes:
    """UTF-8 JSON of an answer."""
    text = json.dumps(tame(data), cls=JSONEncoder, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


class JsonAnswer(JSONRenderer):
    """`application/json`, tamed."""

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else dump(data)


class PlotlyAnswer(JsonAnswer):
    """`?format=plotly`: figures as plotly reads them."""

    media_type = "application/vnd.plotly.v1+json"
    format = "plotly"


class JsonBody(JSONParser):
    """Reads one JSON body of bounded size; a too deep one is a client's error, not ours."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        raw = stream.read(MAX_BODY + 1)
        if len(raw) > MAX_BODY:
            raise TooLarge
        try:
            return json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ParseError("the body is not JSON") from error


class TooLarge(ParseError):
    status_code = 413
    default_code = "too_large"
    default_detail = f"the body is larger than {MAX_BODY // 1024} KiB"


def _refuse(name: str) -> None:
    raise ValueError(name)
