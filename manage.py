#!/usr/bin/env python
"""Entry point of Fulcrum's commands."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.embedded")
    if "--demo" in sys.argv:
        # The demo has a state folder of its own: it starts from an empty database every time.
        os.environ.setdefault("FULCRUM_STATE_DIR", os.path.join("var", "demo"))
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
