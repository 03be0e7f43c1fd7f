"""One spelling per address: two places that mean the same server are joined by it."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
#: Routers that know ranks register one engine once per rank, as `http://host:port@rank`.
_RANKED: Final = re.compile(r"^(?P<address>.+(?::\d+|\])/?)@(?P<rank>\d+)$")


def same_address(url: str) -> str:
    """The one spelling of an address: two addresses are the same engine if these are equal.

    Scheme and host in lower case, `http` where no scheme is written, no default port, no dot at
    the end of the host, IPv6 compressed (a mapped IPv4 address as IPv4), no slash at the end of
    the path, no rank suffix, no user name, no fragment. Names are not resolved: `localhost` and
    `127.0.0.1` stay two. Text that is no address comes back stripped, so that it equals only
    itself.
    """
    text = url.strip()
    ranked = _RANKED.match(text)
    if ranked:
        text = ranked["address"]
    with suppress(ValueError):
        text = f"[{IPv6Address(text)}]"
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return text
    if not host:
        return text
    scheme = parts.scheme.lower()
    shown = _host(host)
    if port is not None and port != DEFAULT_PORTS.get(scheme):
        shown = f"{shown}:{port}"
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    query = f"?{parts.query}" if parts.query else ""
    return f"{scheme}://{shown}{path}{query}"


def rank_of(address: str) -> int | None:
    """The data-parallel rank that a router writes behind an address; None without one."""
    found = _RANKED.match(address.strip())
    return int(found["rank"]) if found else None


def _host(host: str) -> str:
    # Lower case and stripped until nothing changes, so that one spelling stays itself.
    name = host.lower().strip().rstrip(".").strip()
    try:
        found = ip_address(name)
    except ValueError:
        return name
    if isinstance(found, IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else f"[{found.compressed}]"
    return str(found)
