"""All benchmarks, as one list of JSON rows."""

from __future__ import annotations

import json

from . import collect, startup

print(json.dumps([*startup.measure(), *collect.measure()], indent=1))
