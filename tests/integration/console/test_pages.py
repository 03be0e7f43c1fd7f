"""Pages and blocks: for whom they open, what they carry, how they are refreshed."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from django.test import Client

from apps.console.views.pages import BLOCKS
from tests.support import pages

PAGES = (
    "/fleet/",
    "/deployments/",
    "/deployments/assist-chat-prod/",
    "/deployments/chat-pd/",
    "/deployments/stale-prod/",
    "/recommendations/R-2187/",
    "/commands/",
    "/commands/C-0914/",
    "/commands/C-0915/",
    "/commands/C-0910/",
    "/preferences/",
)
LIVE = (
    "/fleet/live/",
    "/fleet/list/live/",
    "/commands/C-0914/live/",
    *(f"/deployments/assist-chat-prod/blocks/{name}/" for name in BLOCKS),
)
INLINE = re.compile(r"\sstyle=|<style|<script(?![^>]*\bsrc=)|\son[a-z]+=\"|hx-on|javascript:")


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("address", PAGES)
def test_pages_open_in_both_languages_without_anything_inline(
    address: str, language: str, browser: Client, sample: Any
) -> None:
    answer = browser.get(address, headers={"accept-language": language})
    html = answer.content.decode()
    assert answer.status_code == 200
    assert INLINE.findall(html) == []
    assert f'lang="{"zh-Hans" if language == "zh-hans" else "en"}"' in html
    assert html.count("<h1") == 1
    words = re.sub(r'data-[\w-]+="[^"]*"', "", html)
    assert re.findall(r"\{[a-z_]+\}|%\([a-z_]+\)s", words) == []


@pytest.mark.parametrize("address", PAGES)
def test_headings_go_down_one_level_at_a_time(address: str, browser: Client, sample: Any) -> None:
    html = browser.get(address).content.decode()
    levels = [int(found) for found in re.findall(r"<h([1-6])", html.split('id="main"', 1)[1])]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


@pytest.mark.parametrize("address", PAGES)
def test_ids_are_unique(address: str, browser: Client, sample: Any) -> None:
    ids = re.findall(r'\sid="([^"]+)"', browser.get(address).content.decode())
    assert sorted(ids) == sorted(set(ids))


@pytest.mark.parametrize("address", [*PAGES, *LIVE])
def test_the_anonymous_are_asked_to_sign_in(
    address: str, client: Client, sample: Any, db: Any
) -> None:
    answer = client.get(address)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/signin/?next=%2F")
    assert sample.calls == []


def test_a_refresh_after_signing_out_keeps_the_page(client: Client, sample: Any, db: Any) -> None:
    answer = client.get("/fleet/live/", headers={"HX-Request": "true"})
    assert answer.status_code == 204
    assert answer["HX-Trigger"] == "signed-out"


@pytest.mark.parametrize("address", PAGES)
def test_the_content_policy_is_strict(address: str, browser: Client, sample: Any) -> None:
    policy = browser.get(address)["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    assert rules["style-src"] == "'self'"
    assert "unsafe" not in policy


@pytest.mark.parametrize("address", LIVE)
def test_blocks_answer_304_until_something_changed(
    address: str, browser: Client, sample: Any
) -> None:
    first = browser.get(address)
    assert first.status_code == 200
    assert first["Cache-Control"] == "private, no-cache"
    again = browser.get(address, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = browser.get(
        address, headers={"If-None-Match": first["ETag"], "accept-language": "zh-hans"}
    )
    assert other.status_code == 200


def test_a_new_sample_changes_the_etag(browser: Client, sample: Any) -> None:
    address = "/deployments/assist-chat-prod/blocks/live/"
    before = browser.get(address)["ETag"]
    changed = replace(pages.deployment(), etag="e2")
    sample.pages["deployments"] = {"assist-chat-prod": changed}
    assert browser.get(address)["ETag"] != before


@pytest.mark.parametrize("name", BLOCKS)
def test_each_block_is_part_of_the_page(name: str, browser: Client, sample: Any) -> None:
    """The page and its blocks come from the same partials."""
    page = browser.get("/deployments/assist-chat-prod/").content.decode()
    block = browser.get(f"/deployments/assist-chat-prod/blocks/{name}/").content.decode()
    found = re.search(r'id="(block-[a-z]+|live)"', block)
    assert found is not None
    assert f'id="{found[1]}"' in page


@pytest.mark.parametrize(
    "address",
    [
        "/deployments/of-somebody-else/",
        "/deployments/of-somebody-else/blocks/live/",
        "/deployments/assist-chat-prod/blocks/nonsense/",
        "/recommendations/R-1/",
        "/commands/C-1/",
        "/nowhere/",
    ],
)
def test_what_may_not_be_seen_does_not_exist(address: str, browser: Client, sample: Any) -> None:
    answer = browser.get(address)
    assert answer.status_code == 404
    assert "Nothing here" in answer.content.decode()


def test_the_viewer_and_the_filters_reach_the_read_model(browser: Client, sample: Any) -> None:
    browser.get("/fleet/?cluster=eu-1&status=warn")
    (_name, viewer, params) = next(call for call in sample.calls if call[0] == "fleet_page")
    assert viewer.name == "alice"
    assert params == {"cluster": "eu-1", "status": "warn"}


def test_filters_and_an_empty_result(browser: Client, sample: Any) -> None:
    html = browser.get("/fleet/?q=nothing-like-it").content.decode()
    assert "No deployment matches" in html and "Clear filters" in html
    sample.pages["fleet"] = pages.fleet(rows=(), cards=(), strip=(), shown=0, visible=0)
    assert "No deployment yet" in browser.get("/fleet/").content.decode()


@pytest.mark.parametrize(
    ("words", "to"),
    [
        ("C-0914", "/commands/C-0914/"),
        ("c914", "/commands/C-914/"),
        ("R-2187", "/recommendations/R-2187/"),
        ("assist-chat", "/deployments/assist-chat-prod/"),
        ("chat", "/fleet/?q=chat"),
        ("", "/fleet/?q="),
    ],
)
def test_search(words: str, to: str, browser: Client, sample: Any) -> None:
    answer = browser.get("/search/", {"q": words})
    assert (answer.status_code, answer["Location"]) == (302, to)


def test_home_and_links_lead_to_pages_that_exist(browser: Client, sample: Any) -> None:
    assert browser.get("/")["Location"] == "/fleet/"
    html = browser.get("/deployments/assist-chat-prod/").content.decode()
    known = {"/deployments/doc-rag-prod/"}
    for link in set(re.findall(r'<a [^>]*href="(/[^"?#]*)', html)) - known:
        assert browser.get(link).status_code in (200, 302), link
    assert 'href="#"' not in html


def test_a_viewer_sees_disabled_buttons_with_the_reason(browser: Client, sample: Any) -> None:
    sample.pages["deployments"] = {"assist-chat-prod": pages.for_viewer(pages.deployment())}
    html = browser.get("/deployments/assist-chat-prod/").content.decode()
    assert re.search(r'<button class="btn pri"[^>]*disabled', html)
    assert "You need the permission to propose here." in html
    assert "data-review" not in html
    assert re.search(r'<button class="mi danger"[^>]*disabled', html)


def test_old_data_turns_apply_off_and_the_page_still_opens(browser: Client, sample: Any) -> None:
    html = browser.get("/deployments/stale-prod/").content.decode()
    assert "Recommendations are paused until data is fresh." in html
    assert re.search(r'<button class="btn pri"[^>]*disabled', html)
    assert html.count("from 19:04") >= 10


def test_names_are_escaped(browser: Client, sample: Any) -> None:
    evil = replace(pages.deployment(), name="<script>alert(1)</script>", model='"><img src=x>')
    sample.pages["deployments"] = {"assist-chat-prod": evil}
    html = browser.get("/deployments/assist-chat-prod/").content.decode()
    assert "<script>alert" not in html and "<img src=x>" not in html


def test_machine_numbers_are_not_localized(browser: Client, sample: Any) -> None:
    html = browser.get("/deployments/chat-pd/", headers={"accept-language": "zh-hans"})
    lengths = re.findall(r'\s(?:width|x|y|height)="([^"]+)"', html.content.decode())
    assert all(re.fullmatch(r"-?\d+(\.\d+)?%?", value) for value in lengths)


def test_pages_stay_small(browser: Client, sample: Any) -> None:
    import gzip

    deployment = gzip.compress(browser.get("/deployments/assist-chat-prod/").content)
    rows = tuple(pages.row(f"deployment-{i:03}") for i in range(200))
    sample.pages["fleet"] = pages.fleet(rows=rows, shown=200, visible=200)
    fleet = gzip.compress(browser.get("/fleet/").content)
    assert len(deployment) < 15_000
    assert len(fleet) < 60_000


def test_rendering_needs_few_queries(
    browser: Client, sample: Any, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(4):
        browser.get("/deployments/assist-chat-prod/")
    with django_assert_max_num_queries(4):
        browser.get("/deployments/assist-chat-prod/blocks/live/")


def test_the_gallery_is_for_developers(browser: Client, sample: Any, settings: Any) -> None:
    assert browser.get("/design/").status_code == 404
    settings.FULCRUM_GALLERY = True
    assert browser.get("/design/").status_code == 200
