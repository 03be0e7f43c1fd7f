"""What the real programs count of requests that went wrong, by recordings whose client is known.

Each router got 6 requests that went well, 1 client that left, 2 streams whose engine died, and 3
requests that found no engine. The Dynamo frontend got 8, 1, 6 streams of which 2 lost their worker,
1 request for an unknown model, 1 that was invalid, and 3 without a decode worker.
"""

from __future__ import annotations

import pytest

from apps.engines.window import Signal

from .data import signals

WENT_WELL, LEFT, CUT, REFUSED = 6, 1, 2, 3
ARRIVED = WENT_WELL + LEFT + CUT + REFUSED
#: Arrived, completed, failed, aborted; None where the program cannot tell.
EXPECTED = [
    ("smg", "router", "smg-1.13.0-failures.prom", (ARRIVED, WENT_WELL, CUT + REFUSED, LEFT)),
    ("sglang_router", "router", "sglang-router-0.3.2-failures.prom",
     (ARRIVED, WENT_WELL + LEFT + CUT, REFUSED, None)),
    ("vllm_router", "router", "vllm-router-0.1.17-failures.prom",
     (ARRIVED, WENT_WELL + LEFT + CUT, REFUSED, None)),
    # The unknown model arrives; of the refused only the first was started, before the frontend
    # knew that no worker was left.
    ("dynamo_frontend", "frontend", "dynamo-1.6.1-frontend-failures.prom",
     (8 + 1 + 6 + 1 + 1, 8 + 4, 2 + 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "role", "file", "counts"), EXPECTED, ids=[e[0] for e in EXPECTED]
)
def test_what_went_wrong_is_counted_as_the_program_does(profile, role, file, counts):
    found = signals(profile, role, "live", file)
    wanted = (
        Signal.REQUESTS_ARRIVED, Signal.REQUESTS_COMPLETED, Signal.REQUESTS_FAILED,
        Signal.REQUESTS_ABORTED,
    )  # fmt: skip
    assert (
        tuple(sum(found[signal].parts.values()) if signal in found else None for signal in wanted)
        == counts
    )
