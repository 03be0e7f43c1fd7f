"""FULCRUM_PROFILE_FOLDER reaches the loader."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core.checks.registry import registry

from apps.engines import loader
from apps.telemetry.apps import own_profiles_are_usable


@pytest.fixture
def configured(settings):
    def start(folder) -> None:
        settings.FULCRUM_PROFILE_FOLDER = str(folder)
        apps.get_app_config("telemetry").ready()

    yield start
    loader.configure(None)


def test_the_folder_of_the_setting_is_read_at_start(configured, tmp_path):
    shipped = (loader.FOLDER / "aibrix.yaml").read_text(encoding="utf-8")
    (tmp_path / "house.yaml").write_text(shipped.replace("profile: aibrix", "profile: house"))
    (tmp_path / "bad.yaml").write_text("version: 2")
    configured(tmp_path)
    assert loader.own_names() == {"house"}
    assert [problem.file for problem in loader.problems()] == ["bad.yaml"]
    assert own_profiles_are_usable in registry.get_checks()
    (warning,) = own_profiles_are_usable(None)
    assert warning.id == "fulcrum.W001"
    assert warning.msg.startswith("bad.yaml, line 1, version: ")


def test_no_folder_is_the_default(configured):
    configured("")
    assert loader.own_names() == frozenset()
    assert loader.problems() == ()
