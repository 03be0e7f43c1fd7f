"""All benchmarks, as one list of JSON rows."""

from __future__ import annotations

import json

from . import startup

print(json.dumps([*startup.measure()], indent=1))
