"""`python -m apps.simulation.demo --state FILE`: run the demo fleet until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from apps.simulation import stories
from apps.simulation.demo.fleet import Fleet, Options
from apps.simulation.demo.ports import NoFreePorts
from apps.simulation.demo.router import RouterFailed


def parse(arguments: list[str]) -> Options:
    """The options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m apps.simulation.demo", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="file to write once all is ready")
    parser.add_argument("--seed", type=int, default=1, help="decides load and prompts")
    parser.add_argument("--rate-scale", type=float, default=1.0, help="multiplies request rates")
    parser.add_argument(
        "--shift-after", type=float, default=75.0, help="seconds of calm before the story turns"
    )
    parser.add_argument("--scenario", choices=stories.SCENARIOS, default="story")
    parser.add_argument("--port-base", type=int, default=None, help="first port to try")
    parser.add_argument("--no-load", action="store_true", help="send nothing until /start_load")
    parser.add_argument("--parent-pid", type=int, default=None, help="stop when it is gone")
    parser.add_argument("--duration", type=float, default=0.0, help="seconds to run, 0 for ever")
    given = parser.parse_args(arguments)
    if given.rate_scale <= 0 or given.shift_after < 0 or given.seed < 0:
        parser.error("--rate-scale must be above 0, --shift-after and --seed not below")
    return Options(
        state=given.state,
        seed=given.seed,
        rate_scale=given.rate_scale,
        shift_after_s=max(1.0, given.shift_after),
        scenario=given.scenario,
        port_base=given.port_base,
        load=not given.no_load,
        parent_pid=given.parent_pid,
        duration_s=given.duration,
    )


async def serve(options: Options) -> None:
    """Run a fleet; SIGTERM and SIGINT end it."""
    fleet = Fleet(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, fleet.request_stop)
    await fleet.run()


def main() -> int:
    """Exit code 0 after a stop, 1 with one sentence on stderr after a failure."""
    try:
        asyncio.run(serve(parse(sys.argv[1:])))
    except (RouterFailed, NoFreePorts, OSError) as error:
        print(f"demo fleet: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
