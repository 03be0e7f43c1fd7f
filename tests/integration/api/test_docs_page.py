"""/api/docs/ under the console's policy: nothing inline, every file ours, a way back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import resolve


@pytest.fixture
def page(db: None) -> Any:
    return Client().get("/api/docs/", headers={"Accept": "text/html"})


def test_the_page_needs_nothing_inline(page: Any) -> None:
    text = page.content.decode()
    policy = page["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "style-src 'self'" in policy
    assert "unsafe" not in policy and "nonce" not in policy
    assert "<style" not in text and " style=" not in text
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert not re.search(r"\son[a-z]+=|javascript:|https?://", text)


def test_every_file_is_served_from_here(page: Any) -> None:
    files = re.findall(r'(?:src|href)="/static/([^"]+)"', page.content.decode())
    assert len(files) >= 6
    assert [name for name in files if finders.find(name) is None] == []
    assert any(name.endswith("swagger-ui-bundle.js") for name in files)


def test_the_script_asks_nobody_else_and_keeps_no_token() -> None:
    path = finders.find("api/docs.js")
    assert isinstance(path, str)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "validatorUrl: null" in text, "its badge would ask another host"
    assert "persistAuthorization: false" in text
    assert not re.search(r"\beval\(|innerHTML|https?://|localStorage", text)


def test_it_links_back_to_the_console_and_to_the_schema(page: Any) -> None:
    text = page.content.decode()
    links = re.findall(r'<a[^>]*href="(/[^"]*)"', text)
    assert {resolve(link).url_name for link in links} == {"fleet", "openapi"}
    assert 'data-schema="/api/openapi.yaml"' in text
    assert re.search(r'data-csrf="\w{64}"', text), "a session acts with it"
