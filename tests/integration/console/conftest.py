"""People and sample pages for the console's views."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from apps.console import data
from tests.support import pages


@pytest.fixture()
def sample(monkeypatch: pytest.MonkeyPatch) -> pages.Selectors:
    """Sample read models in place of `apps.overview.selectors`, at the time of the pictures."""
    found = pages.Selectors()
    monkeypatch.setattr(data, "selectors", lambda: found)
    monkeypatch.setattr("apps.console.viewer.utcnow", lambda: pages.NOW)
    return found


@pytest.fixture()
def alice(db: Any) -> Any:
    """A signed-in person; what she may do is said by the sample pages."""
    return get_user_model().objects.create_user("alice", password="a long enough password")


@pytest.fixture()
def browser(alice: Any) -> Client:
    """alice's browser, with CSRF checks on as in production."""
    client = Client(enforce_csrf_checks=False)
    client.force_login(alice)
    return client
