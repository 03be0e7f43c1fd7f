"""Real components for the live tests, in virtual environments of their own under `var/components`.

    python -m tools.components          make what is missing, and print the time it took
    python -m tools.components lock     write the lock files anew (needs uv)

They stay out of `.venv`: their dependencies and ours would hold each other back. What is installed
is exactly what the hash-locked file names, without looking for dependencies, so a package whose
declared dependencies cannot be had still installs. A stamp beside each environment says of which
lock it was made; a changed lock makes it anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "var" / "components"
#: Longest an installation may take before the tier is listed as not run.
PATIENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Component:
    """One environment. `inputs` are compiled, one after the other, into `lock`; of those named in
    `alone` only the named packages are locked, not what they depend on."""

    key: str
    title: str
    lock: str
    inputs: tuple[str, ...]
    alone: frozenset[str] = frozenset()

    @property
    def venv(self) -> Path:
        return FOLDER / self.key

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def program(self, name: str) -> Path:
        """A program that the environment's packages brought."""
        return self.venv / "bin" / name


COMPONENTS: Final = {
    component.key: component
    for component in (
        Component(
            "dynamo",
            "Dynamo",
            "requirements/components-dynamo.txt",
            ("requirements/components-dynamo.in", "requirements/components-dynamo-imports.in"),
            frozenset({"requirements/components-dynamo.in"}),
        ),
        Component(
            "routers",
            "sglang-router, vllm-router",
            "requirements/components-routers.txt",
            ("requirements/components-routers.in",),
        ),
    )
}


def is_ready(key: str) -> bool:
    """True if the environment was made whole from the lock as it stands."""
    component = COMPONENTS[key]
    stamp = _stamp_file(component)
    return (
        component.python.exists()
        and stamp.is_file()
        and stamp.read_text(encoding="utf-8") == _stamp(component)
    )


def make(key: str) -> str:
    """Make an environment unless it is there; the reason why not, empty if it is there.

    Two callers at once wait for each other.
    """
    if is_ready(key):
        return ""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{key}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if is_ready(key):
            return ""
        return _make(COMPONENTS[key])


def _make(component: Component) -> str:
    started = time.monotonic()
    print(f"Installing {component.title} into {component.venv.relative_to(ROOT)} ...", flush=True)
    _stamp_file(component).unlink(missing_ok=True)
    shutil.rmtree(component.venv, ignore_errors=True)
    for command in _commands(component):
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, timeout=PATIENCE_S, env=_environment()
            )
        except subprocess.TimeoutExpired:
            return f"{component.title} could not be installed in {PATIENCE_S:.0f} s"
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            print("\n".join(lines[-8:]), flush=True)
            return f"{component.title} could not be installed"
    _stamp_file(component).write_text(_stamp(component), encoding="utf-8")
    print(f"Ready in {time.monotonic() - started:.0f} s.", flush=True)
    return ""


def _commands(component: Component) -> list[list[str]]:
    wanted = ["--no-deps", "--require-hashes", "-r", str(ROOT / component.lock)]
    uv = shutil.which("uv")
    if uv:
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(component.venv)],
            [uv, "pip", "install", "--quiet", "--python", str(component.python), *wanted],
        ]
    pip = [str(component.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", str(component.venv)], [*pip, *wanted]]


def _environment() -> dict[str, str]:
    # Inside `.venv` an installer would take that for the place to install to.
    return {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}


def _stamp_file(component: Component) -> Path:
    return FOLDER / f"{component.key}.stamp"


def _stamp(component: Component) -> str:
    lock = (ROOT / component.lock).read_bytes()
    return f"{hashlib.sha256(lock).hexdigest()} {sys.version.split()[0]}"


def lock(component: Component) -> None:
    """Write the lock of a component from its inputs."""
    parts = []
    for name in component.inputs:
        command = [
            "uv", "pip", "compile", "--quiet", "--python-version", "3.11", "--generate-hashes",
            "--no-header", "--no-emit-index-url", "--no-emit-find-links", name,
        ]  # fmt: skip
        if name in component.alone:
            command.append("--no-deps")
        parts.append(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    (ROOT / component.lock).write_bytes(b"".join(parts))


def main(arguments: list[str]) -> int:
    if arguments == ["lock"]:
        for component in COMPONENTS.values():
            lock(component)
        return 0
    failures = [failure for failure in map(make, COMPONENTS) if failure]
    print("\n".join(failures) or "All components are there.", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
