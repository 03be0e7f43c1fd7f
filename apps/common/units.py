"""Units of figures. One enum, so that seconds are never labelled milliseconds."""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """Unit of a `Measurement`. Values are what the API shows."""

    SECONDS = "s"
    RATIO = "ratio"
    COUNT = "count"
    REQUESTS_PER_SECOND = "req/s"
    TOKENS = "tok"
    TOKENS_PER_SECOND = "tok/s"
    BYTES = "B"
    BYTES_PER_SECOND = "B/s"
    USD = "USD"
    USD_PER_HOUR = "USD/h"
    USD_PER_MILLION_TOKENS = "USD/1M tok"
    GPUS = "gpu"
    GPU_HOURS = "gpu-h"
    WORKERS = "workers"
    WATTS = "W"
    JOULES = "J"
