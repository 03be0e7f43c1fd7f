"""`python -m apps.simulation.demo.guard PID COMMAND...`: run a command, end it when PID is gone.

Used where the kernel cannot tie a child's life to its parent's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType

POLL_S = 0.5


def alive(pid: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(arguments: list[str]) -> int:
    """Run the command and return its code."""
    parent, line = int(arguments[0]), arguments[1:]
    child = subprocess.Popen(line)

    def forward(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    while child.poll() is None:
        if not alive(parent):
            child.kill()
        time.sleep(POLL_S)
    return child.returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
