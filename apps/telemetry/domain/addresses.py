"""One engine, several spellings of its address. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from .identity import instance_key


def canonical(text: str, same_hosts: Mapping[str, str] | None = None) -> str:
    """The form under which two spellings of one address are equal.

    Scheme, path, letter case, the default port of the scheme (80 without one) and the brackets and
    zeros of IPv6 make no difference. `same_hosts` names hosts that someone declared to be one
    (`{"localhost": "127.0.0.1"}`): nothing proves that by itself.
    """
    return _canonical(text, tuple((same_hosts or {}).items()))


@lru_cache(maxsize=65_536)
def _canonical(text: str, same_hosts: tuple[tuple[str, str], ...]) -> str:
    host, colon, port = instance_key(text).rpartition(":")
    return f"{dict(same_hosts).get(host, host)}{colon}{port}"
