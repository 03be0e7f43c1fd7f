"""One engine, however its name is spelled: addresses, instance labels, worker ids. Pure.

Places spell the same worker differently: a router registers `http://HOST:80/`, a Prometheus labels
`instance="host:80"`, Dynamo's worker ports write an id in hexadecimal and its frontend the same id
in decimal. Everything that joins two places goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

from apps.common.addresses import DEFAULT_PORTS
from apps.common.addresses import rank_of as rank_of
from apps.common.addresses import same_address as same_address

#: A 64-bit id in hexadecimal, unpadded (Dynamo writes `{:x}`).
_HEX: Final = re.compile(r"^(?:0x)?[0-9a-f]{1,16}$")

T = TypeVar("T")


def instance_key(address: str) -> str:
    """`host:port` of an address, of a metrics URL or of an `instance` label; the port is always
    written, as a Prometheus does."""
    parts = urlsplit(same_address(address))
    if not parts.hostname:
        return address.strip()
    port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}" if port else host


def canonical_id(text: str, *, is_hex: bool | None = None) -> str:
    """A worker id in decimal.

    `is_hex` says how the place writes ids; None decides by the text: letters a to f mean
    hexadecimal, digits only mean decimal. (An all-digit hexadecimal id, about 1 of 1,800, needs
    `is_hex`, or `join_ids`, which tries both.) An id that is no 64-bit number comes back stripped
    and lower-cased.
    """
    raw = text.strip().lower()
    if is_hex is None:
        is_hex = not raw.isdecimal()
    if is_hex and _HEX.match(raw):
        return str(int(raw, 16))
    if not is_hex and raw.isdecimal() and raw.isascii():
        return str(int(raw))
    return raw


def join_ids(left: Iterable[str], right: Iterable[str]) -> dict[str, str]:
    """Ids of two places that name the same worker, `left` to `right`, whatever form each writes.
    An id that could be two of the other side is left out: a wrong join is worse than none."""
    known: dict[str, set[str]] = {}
    for other in right:
        for form in _forms(other):
            known.setdefault(form, set()).add(other)
    joined: dict[str, str] = {}
    for one in left:
        found = {other for form in _forms(one) for other in known.get(form, ())}
        if len(found) == 1:
            joined[one] = next(iter(found))
    return joined


def _forms(text: str) -> frozenset[str]:
    return frozenset({canonical_id(text), canonical_id(text, is_hex=True)})


def of_inventory(values: Mapping[str, T], known: Iterable[str]) -> dict[str, T]:
    """Values per worker as another place spells its workers, keyed as the inventory spells them.

    Workers that the inventory no longer holds are left out: routers and frontends go on exporting
    a gauge of a worker that is gone. The exact spelling wins over another one.
    """
    exact = list(known)
    spelled = {same_address(url): url for url in exact}
    found: dict[str, T] = {}
    for key, value in values.items():
        owner = spelled.get(same_address(key))
        if owner is not None:
            found.setdefault(owner, value)
    found.update({url: values[url] for url in exact if url in values})
    return found


def duplicates(urls: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Addresses that are one engine under several spellings, by their one spelling."""
    groups: dict[str, list[str]] = {}
    for url in dict.fromkeys(urls):
        groups.setdefault(same_address(url), []).append(url)
    return {one: tuple(spelled) for one, spelled in groups.items() if len(spelled) > 1}
