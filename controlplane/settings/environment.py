"""Settings from `FULCRUM_*` variables, each with a `_FILE` form for secrets.

`REGISTRY` lists every variable with its default and meaning; the reference page is generated from
it and a test keeps page and code equal.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    default: str
    meaning: str
    secret: bool = False


REGISTRY: Final = (
    Variable("FULCRUM_DATABASE_URL", "", "Database; empty means SQLite in the state folder", True),
    Variable("FULCRUM_BROKER_URL", "memory://", "Celery broker", True),
    Variable("FULCRUM_SECRET_KEY", "", "Signs sessions; comma-separated, newest first", True),
    Variable("FULCRUM_SECRET_BOX_KEYS", "", "Seal stored credentials; comma-separated", True),
    Variable("FULCRUM_TOKEN_PEPPERS", "", "Peppers of API tokens; comma-separated", True),
    Variable("FULCRUM_ALLOWED_HOSTS", "127.0.0.1,localhost", "Host names that are answered"),
    Variable("FULCRUM_STATE_DIR", "var", "Folder of the SQLite file and generated secrets"),
    Variable("FULCRUM_ALLOWED_NETWORKS", "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7",
             "Networks that entered addresses may lie in"),
    Variable("FULCRUM_LOOPBACK_PORTS", "", "Loopback ports that may be called (the demo's own)"),
    Variable("FULCRUM_PROFILE_FOLDER", "", "Folder of own engine profiles; empty means none"),
    Variable("FULCRUM_LOG_LEVEL", "INFO", "Level of the JSON log"),
    Variable("FULCRUM_HTTPS", "", "1: cookies are Secure and HSTS is on (production: default 1)"),
    Variable("FULCRUM_METRICS_TOKEN", "", "Bearer token for /metrics; empty means loopback only",
             True),
)  # fmt: skip


class SettingError(Exception):
    """A variable cannot be understood; the message names it and says what is expected."""


def read(name: str) -> str:
    """The value of a registered variable: `<name>_FILE`'s content, else itself, else default."""
    variable = next((item for item in REGISTRY if item.name == name), None)
    if variable is None:
        raise SettingError(f"{name} is not a registered setting")
    path = os.environ.get(f"{name}_FILE", "")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingError(f"{name}_FILE: {error.strerror or error}") from error
    return os.environ.get(name, variable.default)


def read_list(name: str) -> list[str]:
    """A comma-separated variable."""
    return [part.strip() for part in read(name).split(",") if part.strip()]


def read_flag(name: str, default: bool) -> bool:
    """A yes/no variable."""
    text = read(name).lower()
    if text in ("", "default"):
        return default
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise SettingError(f"{name} must be 1 or 0")


def database(state_dir: Path) -> dict[str, object]:
    """Django's database entry from FULCRUM_DATABASE_URL (postgresql:// or sqlite path)."""
    url = read("FULCRUM_DATABASE_URL")
    if not url or url.startswith("sqlite"):
        name = urlsplit(url).path if url else str(state_dir / "fulcrum.sqlite3")
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": name,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": (
                    "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA foreign_keys=ON;"
                ),
            },
        }
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise SettingError("FULCRUM_DATABASE_URL must start with postgresql:// or sqlite://")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "CONN_MAX_AGE": 60,
        "OPTIONS": {"connect_timeout": 5},
    }


def kept_secret(state_dir: Path, name: str) -> list[str]:
    """A secret from its variable, else generated once and kept in the state folder (0600)."""
    given = read_list(name)
    if given:
        return given
    import secrets

    path = state_dir / f"{name.lower()}.key"
    if not path.exists():
        state_dir.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(48))
    return [path.read_text(encoding="utf-8").strip()]
