"""One engine, several spellings of its address. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

_PORTS = {"http": "80", "https": "443"}


def canonical(text: str, same_hosts: Mapping[str, str] | None = None) -> str:
    """The form under which two spellings of one address are equal.

    Scheme, path, letter case, the default port of the scheme (80 without one) and the brackets and
    zeros of IPv6 make no difference. `same_hosts` names hosts that someone declared to be one
    (`{"localhost": "127.0.0.1"}`): nothing proves that by itself.
    """
    return _canonical(text, tuple((same_hosts or {}).items()))


@lru_cache(maxsize=65_536)
def _canonical(text: str, same_hosts: tuple[tuple[str, str], ...]) -> str:
    text = text.strip()
    scheme = text.split("://", 1)[0].lower() if "://" in text else "http"
    rest = text.split("://", 1)[1] if "://" in text else text
    try:
        ipaddress.IPv6Address(rest)
        rest = f"[{rest}]"
    except ValueError:
        pass
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        host, port = parts.hostname or "", str(parts.port or "")
    except ValueError:
        return rest.lower()
    if not host:
        return rest.lower()
    host = dict(same_hosts).get(host, host)
    try:
        host = ipaddress.ip_address(host).compressed
    except ValueError:
        host = host.rstrip(".")
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port or _PORTS.get(scheme, '80')}"
