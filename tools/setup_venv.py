"""Create `.venv` and install a hash-locked requirements file, with uv if it is there, else pip.

Standard library only: it runs before anything of ours is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


def create() -> None:
    """Make the virtual environment unless a working one is there."""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python may run this file
        sys.exit(f"Fulcrum needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    if PYTHON.exists():
        return
    uv = shutil.which("uv")
    if uv:
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(VENV)], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)


def install(requirements: str) -> None:
    """Install exactly what the lock names, then build the message catalogues."""
    started = time.monotonic()
    print(f"Installing {requirements} into .venv ...", flush=True)
    uv = shutil.which("uv")
    if uv:
        command = [uv, "pip", "install", "--quiet", "--python", str(PYTHON)]
    else:
        command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--require-hashes", "-r", str(ROOT / requirements)], check=True)
    subprocess.run([str(PYTHON), "-m", "tools.compile_messages"], check=True, cwd=ROOT)
    print(f"Ready in {time.monotonic() - started:.0f} s.", flush=True)


if __name__ == "__main__":
    try:
        if sys.argv[1] == "create":
            create()
        else:
            install(sys.argv[2])
    except subprocess.CalledProcessError as error:
        sys.exit(f"Set-up failed: {' '.join(map(str, error.cmd[:6]))} ... ({error.returncode})")
