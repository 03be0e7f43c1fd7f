"""The Connect wizard on the running product: a real Prometheus that scrapes the demo's engines and
router is tested, searched and connected, and its windows arrive."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.integration.console.test_connect import form
from tests.support.product import Product, fleet, product, wait_until
from tests.support.prometheus import Prometheus

pytestmark = pytest.mark.live

#: The demo's own people do not configure; an administrator does.
ADMIN = """
from apps.accounts import services as accounts
from apps.accounts.domain.authorize import SYSTEM, Role, ScopeKind
from apps.common.clock import utcnow
user = accounts.create_user(actor=SYSTEM, now=utcnow(), username="alice", password="{password}")
accounts.bind_role(actor=SYSTEM, now=utcnow(), user=user, role=Role.ADMIN,
                   scope_kind=ScopeKind.INSTALLATION, scope_id=None)
"""
PASSWORD = "a-password-of-alice-1"


class Browser:
    """alice in the wizard, by its forms."""

    def __init__(self, product: Product, session: requests.Session) -> None:
        self.product, self.session = product, session

    def see(self, step: str) -> str:
        answer = self.session.get(f"{self.product.url}/connect/{step}/", timeout=20)
        assert answer.url.endswith(f"/connect/{step}/"), answer.url
        return answer.text

    def send(self, step: str, do: str, **fields: str) -> requests.Response:
        address = f"{self.product.url}/connect/{step}/"
        return self.session.post(
            address,
            data={
                **form(self.see(step)), **fields, "do": do,
                "csrfmiddlewaretoken": self.session.cookies["csrftoken"],
            },
            headers={"Referer": address},
            allow_redirects=False,
            timeout=40,
        )  # fmt: skip

    def go(self, step: str, do: str, to: str, **fields: str) -> None:
        answer = self.send(step, do, **fields)
        assert (answer.status_code, answer.headers.get("Location")) == (302, to), answer.text[
            -3000:
        ]


def test_the_wizard_connects_the_demo_through_a_real_prometheus() -> None:
    with fleet() as running, tempfile.TemporaryDirectory() as folder:
        item = running.deployment()
        addresses = [worker["metrics_url"] for worker in item["workers"]]
        addresses.append(item["router"]["metrics_url"])
        prometheus = Prometheus([urlsplit(url).netloc for url in addresses], 1, Path(folder))
        prometheus.start()
        try:
            with product(running, "--prometheus", prometheus.url) as one:
                connect(one, item, prometheus.url)
        finally:
            prometheus.stop()


def connect(one: Product, item: dict[str, Any], url: str) -> None:
    made = one.manage("shell", "-c", ADMIN.format(password=PASSWORD))
    assert made.returncode == 0, made.stderr
    one.details |= {"user": "alice", "password": PASSWORD}
    browser = Browser(one, one.signed_in())

    browser.go(
        "source", "test", "/connect/source/", kind="prometheus", url=url, interval_s="5",
        cluster_name="West",
    )  # fmt: skip
    page = browser.see("source")
    assert "It answers as a Prometheus." in page
    assert "agrees with ours to within" in page
    browser.go("source", "next", "/connect/find/")

    page = browser.see("find")
    assert item["model"] in page
    (key,) = re.findall(r'name="include-(\w+)"', page)
    roles = re.findall(r'<select name="role-\w+".*?<option value="(\w+)" selected>', page, re.S)
    assert sorted(roles) == ["decode", "prefill"]
    fields = {f"slug-{key}": "west-chat", f"environment-{key}": "demo"}
    fields |= dict.fromkeys(re.findall(r'name="(accelerator-\w+)"', page), "h200-sxm")
    fields |= dict.fromkeys(re.findall(r'name="(gpus-\w+)"', page), "1")
    browser.go("find", "next", "/connect/coverage/", **fields)
    assert "Level 2 of 4" in browser.see("coverage")
    browser.go("coverage", "next", "/connect/prices/")
    browser.go("prices", "next", "/connect/commands/")

    # The router is real: a key that may only read fails the dry run, the admin key passes it.
    router = item["router"]
    backend = {f"adapter-{key}": "router_workers", f"address-{key}": router["url"]}
    dry = f"dry_run:{key}"
    to = "/connect/commands/"
    browser.go("commands", dry, to, **backend, **{f"control-{key}": router["read_key"]})
    assert "The backend refuses" in browser.see("commands")
    browser.go("commands", dry, to, **backend, **{f"control-{key}": router["admin_key"]})
    page = browser.see("commands")
    assert "The dry run passed" in page
    assert router["admin_key"] not in page
    browser.go("commands", "finish", "/fleet/", **{f"mode-{key}": "approve"})

    windows = (
        "select count(*) from telemetry_storedwindow w join fleet_deployment d "
        "on d.id = w.deployment_id where d.slug = 'west-chat' and w.scope = ?"
    )

    def arrived() -> bool:
        return all(one.rows(windows, scope)[0][0] for scope in ("router", "prefill", "decode"))

    wait_until(arrived, 30, "windows of the connected deployment")
    page = browser.session.get(f"{one.url}/deployments/west-chat/", timeout=20).text
    assert "TTFT" in page
    workers = (
        "select count(*) from fleet_worker w join fleet_deployment d on d.id = w.deployment_id"
    )
    scrape_through_the_router(browser, item)
    (count,) = one.rows(f"{workers} where d.slug = 'west-chat'")[0]
    assert count == len(item["workers"])


def scrape_through_the_router(browser: Browser, item: dict[str, Any]) -> None:
    """No Prometheus: the router's list of workers gives addresses and roles."""
    router = item["router"]
    browser.go(
        "source", "test", "/connect/source/", kind="scrape", router_url=router["url"],
        router_key=router["read_key"], addresses=router["metrics_url"], cluster_name="East",
    )  # fmt: skip
    page = browser.see("source")
    assert "Metrics can be read." in page
    assert router["read_key"] not in page
    assert all(worker["metrics_url"] in page for worker in item["workers"])
    browser.go("source", "next", "/connect/find/")
    assert "the router says so" in browser.see("find")
