"""Compare the vendored browser files with freshly packed packages.

`python tools/vendor_check.py` checks every `SHA256SUMS` and needs no network.
`python tools/vendor_check.py --pack` also runs `npm pack <name>@<version>` in a temporary folder
and compares the packed files byte for byte; it needs npm and its configured registry.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = (ROOT / "static" / "vendor", ROOT / "tests" / "e2e" / "vendor")
SUMS: Final = "SHA256SUMS"
#: Folder name -> package name, where the folder cannot carry the scope's sign.
PACKAGES: Final = {"fontsource-variable-inter": "@fontsource-variable/inter"}
#: Files that no package ships: written down from what plotly adds at run time.
OWN_FILES: Final = frozenset({"plotly-global.css"})


def vendored() -> list[Path]:
    """Every `<name>-<version>` folder."""
    return sorted(path for folder in FOLDERS for path in folder.iterdir() if path.is_dir())


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_sums(folder: Path) -> list[str]:
    """Files that miss, are not listed, or differ from `SHA256SUMS`."""
    listed = {}
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        value, name = line.split(maxsplit=1)
        listed[name] = value
    present = {path.name for path in folder.iterdir()} - {SUMS}
    problems = [f"{folder.name}: {name} is not listed" for name in sorted(present - set(listed))]
    problems += [f"{folder.name}: {name} is missing" for name in sorted(set(listed) - present)]
    for name in sorted(present & set(listed)):
        if digest((folder / name).read_bytes()) != listed[name]:
            problems.append(f"{folder.name}: {name} was changed")
    return problems


def check_pack(folder: Path) -> list[str]:
    """Files that differ from the published package of the same name and version."""
    name, _, version = folder.name.rpartition("-")
    package = PACKAGES.get(name, name)
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(
            ["npm", "pack", "--silent", f"{package}@{version}"],
            cwd=place,
            check=True,
            capture_output=True,
        )
        archive = next(Path(place).glob("*.tgz"))
        with tarfile.open(archive) as packed:
            published = set()
            for member in packed.getmembers():
                file = packed.extractfile(member)
                if file is not None:
                    published.add(digest(file.read()))
    return [
        f"{folder.name}: {path.name} is not in {package}@{version}"
        for path in sorted(folder.iterdir())
        if path.name not in OWN_FILES | {SUMS} and digest(path.read_bytes()) not in published
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pack", action="store_true", help="compare with freshly packed packages")
    given = parser.parse_args()
    problems = []
    for folder in vendored():
        problems += check_sums(folder)
        if given.pack:
            problems += check_pack(folder)
    for problem in problems:
        sys.stderr.write(problem + "\n")
    if not problems:
        sys.stdout.write(f"{len(vendored())} vendored packages are unchanged\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
