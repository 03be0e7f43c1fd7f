"""PostgreSQL, Redis, several processes (DESIGN §6). Secrets come from variables only."""

from __future__ import annotations

from .base import *  # noqa: F403
from .environment import SettingError, read, read_flag

for _name in ("FULCRUM_SECRET_KEY", "FULCRUM_SECRET_BOX_KEYS", "FULCRUM_TOKEN_PEPPERS"):
    if not read(_name):
        raise SettingError(f"{_name} must be set in production")

_https = read_flag("FULCRUM_HTTPS", True)
SESSION_COOKIE_SECURE = _https
CSRF_COOKIE_SECURE = _https
SECURE_SSL_REDIRECT = _https
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = _https
SECURE_HSTS_PRELOAD = _https

if read("FULCRUM_BROKER_URL").startswith("redis"):
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": read("FULCRUM_BROKER_URL"),
        }
    }
