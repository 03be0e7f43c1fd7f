"""All benchmarks, as one list of JSON rows."""

from __future__ import annotations

import json

from . import collect, pages, startup

print(json.dumps([*startup.measure(), *collect.measure(), *pages.measure()], indent=1))
