"""Runs that are done once per module: the database is given back as it was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from django.db import transaction


@pytest.fixture(scope="module")
def module_db(django_db_setup, django_db_blocker) -> Callable[[], AbstractContextManager[None]]:
    """A context in which a module's fixture may use the database; all of it is rolled back."""

    @contextmanager
    def opened() -> Iterator[None]:
        with django_db_blocker.unblock(), transaction.atomic():
            yield
            transaction.set_rollback(True)

    return opened
