"""Real services for the tests: found on PATH, or installed from Debian's packages where allowed.

Components that come as Python packages (`tools/components.py`) are services too, under their key.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import components


@dataclass(frozen=True, slots=True)
class Service:
    """A program the tests need, and the Debian packages that bring it."""

    name: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]


SERVICES: Final = {
    "postgresql": Service("PostgreSQL", ("initdb",), ("postgresql",)),
    "redis": Service("Redis", ("redis-server",), ("redis-server",)),
    "prometheus": Service("Prometheus", ("prometheus",), ("prometheus",)),
    "chromium": Service("Chromium", ("chromium", "chromium-browser"), ("chromium",)),
    "gettext": Service("gettext", ("msgfmt", "xgettext"), ("gettext",)),
    # No package of any distribution: docs/how-to/run-real-vllm-on-a-cpu.md says how to get it.
    "vllm": Service("vLLM", ("vllm",), ()),
    **{key: Service(found.title, (), ()) for key, found in components.COMPONENTS.items()},
}
EXTRA_PACKAGES: Final = {"chromium": ("fonts-noto-cjk",)}


def find(program: str) -> str | None:
    """A program on PATH or in PostgreSQL's own folders."""
    found = shutil.which(program)
    if found:
        return found
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), reverse=True)
    return str(places[0]) if places else None


def has(key: str) -> bool:
    """True if the service's program is here."""
    if key in components.COMPONENTS:
        return components.is_ready(key)
    return any(find(program) for program in SERVICES[key].programs)


def install_missing(keys: list[str]) -> list[str]:
    """Install what is missing as root or with passwordless sudo; returns what is missing still."""
    missing = [key for key in keys if not has(key)]
    for key in [key for key in missing if key in components.COMPONENTS]:
        failure = components.make(key)
        if failure:
            print(failure, flush=True)
    return _from_packages([key for key in keys if not has(key)])


def _from_packages(missing: list[str]) -> list[str]:
    """Install the Debian packages of what is missing; returns what is missing still."""
    wanted = [key for key in missing if SERVICES[key].packages]
    if not wanted or not shutil.which("apt-get"):
        return missing
    prefix: list[str] = []
    if os.geteuid() != 0:
        if subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode != 0:
            return missing
        prefix = ["sudo", "-n"]
    packages = [p for key in wanted for p in SERVICES[key].packages]
    packages += [p for key in wanted for p in EXTRA_PACKAGES.get(key, ())]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print(f"Installing {' '.join(packages)} ...", flush=True)
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            [*prefix, "apt-get", "-qq", *command], env=environment, capture_output=True
        )
        if done.returncode != 0:
            print(done.stderr.decode(errors="replace")[-800:], flush=True)
    return [key for key in missing if not has(key)]


def free_port() -> int:
    """A free loopback port below the ephemeral range's usual start."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000):
        with contextlib.closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A throw-away PostgreSQL on loopback; yields its URL. It never runs as root."""
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="fulcrum-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    data = folder / "data"
    initdb, pg_ctl = find("initdb"), find("pg_ctl")
    assert initdb and pg_ctl
    quiet = {"check": True, "capture_output": True, "cwd": "/"}
    subprocess.run(
        [*as_user, initdb, "-D", str(data), "-A", "trust", "-U", "fulcrum", "--no-sync"],
        **quiet,  # type: ignore[call-overload]
    )
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [*as_user, pg_ctl, "-D", str(data), "-w"]
    subprocess.run(
        [*control, "-o", options, "-l", str(folder / "log"), "start"],
        **quiet,  # type: ignore[call-overload]
    )
    try:
        yield f"postgresql://fulcrum@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """A throw-away Redis on loopback; yields its URL."""
    port = free_port()
    program = find("redis-server")
    assert program
    process = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for_port(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(5)


def _wait_for_port(port: int, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.closing(socket.socket()) as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")
