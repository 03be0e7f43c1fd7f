"""An event loop whose clock jumps to the next timer: minutes of a fleet take milliseconds."""

from __future__ import annotations

import asyncio
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while work is done and jumps when there is nothing left but timers."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        really_select = selector.select

        def select(timeout: float | None = None) -> Any:
            if timeout is not None and timeout > 0:
                self._virtual_now += timeout
            return really_select(0 if timeout is not None else None)

        selector.select = select

    def time(self) -> float:
        return self._virtual_now

    def run_until(self, when: float) -> None:
        """Run everything that is due up to `when`, seconds."""
        self.call_at(when, self.stop)
        self.run_forever()
