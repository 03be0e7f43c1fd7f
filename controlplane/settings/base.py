"""Settings common to every way of running."""

from __future__ import annotations

from pathlib import Path

from csp.constants import NONE, SELF
from django.utils.translation import gettext_lazy as _

from .environment import database, kept_secret, read, read_list

BASE_DIR = Path(__file__).resolve().parent.parent.parent
STATE_DIR = Path(read("FULCRUM_STATE_DIR"))
if not STATE_DIR.is_absolute():
    STATE_DIR = BASE_DIR / STATE_DIR
STATE_DIR.mkdir(parents=True, exist_ok=True)

_secret_keys = kept_secret(STATE_DIR, "FULCRUM_SECRET_KEY")
SECRET_KEY = _secret_keys[0]
SECRET_KEY_FALLBACKS = _secret_keys[1:]
FULCRUM_SECRET_BOX_KEYS = kept_secret(STATE_DIR, "FULCRUM_SECRET_BOX_KEYS")
FULCRUM_TOKEN_PEPPERS = kept_secret(STATE_DIR, "FULCRUM_TOKEN_PEPPERS")
FULCRUM_ALLOWED_NETWORKS = read_list("FULCRUM_ALLOWED_NETWORKS")
FULCRUM_LOOPBACK_PORTS = frozenset(int(p) for p in read_list("FULCRUM_LOOPBACK_PORTS"))
FULCRUM_METRICS_TOKEN = read("FULCRUM_METRICS_TOKEN")
FULCRUM_PROFILE_FOLDER = read("FULCRUM_PROFILE_FOLDER")

DEBUG = False
#: An unknown code of a sentence fails, here and wherever DEBUG is on.
FULCRUM_STRICT_WORDING = False
ALLOWED_HOSTS = read_list("FULCRUM_ALLOWED_HOSTS")
ROOT_URLCONF = "controlplane.urls"
WSGI_APPLICATION = "controlplane.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "csp",
    "apps.common",
    "apps.audit",
    "apps.accounts",
    "apps.fleet",
    "apps.telemetry",
    "apps.diagnosis",
    "apps.slo",
    "apps.cost",
    "apps.planning",
    "apps.commands",
    "apps.overview",
    "apps.api",
    "apps.console",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.template.context_processors.i18n",
                "django.contrib.messages.context_processors.messages",
                "apps.console.context.frame",
            ],
        },
    }
]

DATABASES = {"default": database(STATE_DIR)}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = STATE_DIR / "staticfiles"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
LOGIN_URL = "/signin/"
LOGIN_REDIRECT_URL = "/fleet/"
LOGOUT_REDIRECT_URL = "/signin/"
ACCOUNT_ADAPTER = "apps.console.signin.ClosedAccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_RATE_LIMITS = {"login_failed": "10/m/ip,5/5m/key"}
ACCOUNT_SESSION_REMEMBER = None

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "font-src": [SELF],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.api.authentication.BearerTokenAuthentication",
        "apps.api.authentication.BrowserSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    # What `extend_schema` builds on where it marks a method.
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": "apps.api.pagination.CursorPages",
    "EXCEPTION_HANDLER": "apps.api.errors.problem_handler",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Fulcrum API",
    "VERSION": "1",
    "DESCRIPTION": "Facts and actions of Fulcrum.",
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {"SourceKindEnum": ("prometheus", "scrape")},
}

CELERY_BROKER_URL = read("FULCRUM_BROKER_URL")
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": read("FULCRUM_LOG_LEVEL")},
    "loggers": {
        "celery": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        "waitress": {"level": "ERROR"},
        "urllib3": {"level": "WARNING"},
        "kombu": {"level": "ERROR"},
    },
}
