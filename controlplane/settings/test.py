"""Settings of the test tiers: a state folder of their own, fast hashing, plain static files."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("FULCRUM_STATE_DIR", tempfile.mkdtemp(prefix="fulcrum-test-"))
os.environ.setdefault("FULCRUM_SECRET_KEY", "test-secret-key-that-is-long-enough-for-everything")
os.environ.setdefault("FULCRUM_SECRET_BOX_KEYS", "test-box-key")
os.environ.setdefault("FULCRUM_TOKEN_PEPPERS", "test-pepper")

from .base import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOWED_HOSTS = ["*"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_AUTOREFRESH = True
FULCRUM_STRICT_WORDING = True
