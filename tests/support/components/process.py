"""A component as a child process: it is ready within a deadline, or the log says why not, and it
is gone at the end, however the test went. It is ended by its own process id only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import requests

from apps.simulation.demo.ports import free_block

PR_SET_PDEATHSIG = 1
#: Longest a component may take to be ready, on a machine that does other things too.
READY_S = 60.0
#: Longest that all together may take to end by themselves; idle ones need no more.
STOP_S = 2.0
#: A hub that nobody answers for: these programs look for a model's tokenizer there by its name.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}

_given: list[int] = []


def ports(count: int) -> list[int]:
    """Free loopback ports in a row, which this process has not given away before."""
    base: int | None = max(_given) + 1 if _given else None
    found = free_block(count, base)
    _given.extend(found)
    return found


class NotReady(AssertionError):
    """A component ended, or was not ready in time; the text ends with its log."""


class Component:
    """One process. `is_ready` is asked until it is true; what it raises means not yet."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        is_ready: Callable[[], bool],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._command = [str(part) for part in command]
        self._is_ready = is_ready
        self._folder = folder
        self._log = folder / f"{name}.log"
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self.ready_s = 0.0

    def start(self) -> None:
        """Start, without waiting."""
        self._started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until it is ready; raises NotReady."""
        assert self._process is not None
        ends = self._started + timeout_s
        while time.monotonic() < ends:
            if self._process.poll() is not None:
                raise NotReady(f"{self.name} ended with {self._process.returncode}:\n{self.log()}")
            with contextlib.suppress(requests.RequestException, KeyError, ValueError):
                if self._is_ready():
                    self.ready_s = time.monotonic() - self._started
                    return
            time.sleep(0.1)
        raise NotReady(f"{self.name} was not ready in {timeout_s:.0f} s:\n{self.log()}")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(10)

    def ask_to_end(self) -> None:
        """Let it end by itself; nothing happens if it has ended."""
        self._signal(signal.SIGTERM)

    def stop(self, patience_s: float) -> None:
        """End it, if it has not ended by itself when the patience is over."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, patience_s))
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self, lines: int = 25) -> str:
        """The last lines it wrote."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        # The group is the process' own (a new session), so no other program is in it.
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


@contextlib.contextmanager
def running(components: Sequence[Component]) -> Iterator[None]:
    """Start all at once, wait until all are ready, and stop all, whatever happens."""
    try:
        for component in components:
            component.start()
        for component in components:
            component.wait_ready()
        yield
    finally:
        for component in components:
            component.ask_to_end()
        ends = time.monotonic() + STOP_S
        for component in components:
            component.stop(ends - time.monotonic())


def until(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Wait until the condition holds; seconds waited. What it raises of HTTP means not yet."""
    started = time.monotonic()
    while time.monotonic() < started + timeout_s:
        with contextlib.suppress(requests.RequestException, KeyError, ValueError):
            if condition():
                return time.monotonic() - started
        time.sleep(0.1)
    raise NotReady(f"not in {timeout_s:.0f} s: {what}")


def _die_with_parent() -> Callable[[], None] | None:
    """What the child runs before exec so that the kernel ends it with this process (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare


def answers(url: str) -> bool:
    """True if the address answers 200."""
    return requests.get(url, timeout=2).status_code == 200
