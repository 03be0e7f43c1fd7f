"""Build `.mo` files from `.po` files without the gettext tools (a fresh machine has none)."""

from __future__ import annotations

import sys
from pathlib import Path

import polib


def main(root: Path) -> int:
    """Compile what is newer than its `.mo`; returns how many were built."""
    built = 0
    for source in sorted(root.glob("locale/*/LC_MESSAGES/*.po")):
        target = source.with_suffix(".mo")
        if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
            continue
        polib.pofile(str(source)).save_as_mofile(str(target))
        built += 1
    return built


if __name__ == "__main__":
    main(Path(__file__).resolve().parent.parent)
    sys.exit(0)
