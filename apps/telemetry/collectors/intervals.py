"""Durations and scrape intervals as a Prometheus writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import yaml

_DURATION: Final = re.compile(r"([0-9.]+)(ms|s|m|h|d|w|y)")
_SECONDS: Final = {
    "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0,
    "y": 31_536_000.0,
}  # fmt: skip


def seconds(text: str) -> float | None:
    """A duration as Prometheus writes it (`1m30s`) in seconds; None if it is none."""
    parts = _DURATION.findall(text)
    if not parts or "".join(f"{n}{u}" for n, u in parts) != text.strip():
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def scrape_interval(yaml_text: str, jobs: Sequence[str]) -> float | None:
    """Seconds between scrapes according to a Prometheus' own configuration: the longest of the
    jobs (all jobs if none is named); None if it says nothing that can be read."""
    try:
        config = yaml.safe_load(yaml_text)
        default = str((config.get("global") or {}).get("scrape_interval", "1m"))
        texts = [
            str(job.get("scrape_interval", default))
            for job in config.get("scrape_configs") or ()
            if not jobs or job.get("job_name") in jobs
        ]
    except (yaml.YAMLError, AttributeError, TypeError):
        return None
    found = [seconds(text) for text in texts or [default]]
    known = [value for value in found if value is not None and value > 0]
    return max(known) if len(known) == len(found) else None
