"""Choosing ports for a fleet: one free block on 127.0.0.1, below the ephemeral range.

An engine takes two ports (its own and its bootstrap port) and a router two, and nothing retries a
busy one. So the whole block is planned before anything starts.
"""

from __future__ import annotations

import os
import socket
import sys

FIRST, LAST = 20_000, 32_700  # Linux hands out ports from 32,768 on
BLOCK = 50
BLOCKS = (LAST - FIRST) // BLOCK


class NoFreePorts(RuntimeError):
    """No block of ports is free."""


def is_free(port: int) -> bool:
    """Whether 127.0.0.1:`port` can be listened on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_block(count: int, base: int | None = None) -> list[int]:
    """`count` consecutive free ports, from `base` on or from a place that depends on the process.

    NoFreePorts if there is none; with `base` only blocks at and above it are tried.
    """
    if count > BLOCK:
        raise ValueError(f"a block holds {BLOCK} ports, {count} were asked for")
    if base is None:
        shift = os.getpid() % BLOCKS
        starts = [FIRST + BLOCK * ((shift + i) % BLOCKS) for i in range(BLOCKS)]
    else:
        starts = list(range(base, LAST - count, BLOCK))
    for start in starts:
        ports = list(range(start, start + count))
        if all(is_free(port) for port in ports):
            return ports
    raise NoFreePorts(f"no {count} free ports in a row below {LAST} on 127.0.0.1")
