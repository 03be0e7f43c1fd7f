"""One engine under several spellings is one worker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.common.measurement import Place
from apps.engines.window import Signal
from apps.telemetry.domain import identity

from .test_build import DECODE, ROUTER, figures, gauge, window

RECORDED = Path(__file__).resolve().parents[2] / "data" / "engines" / "live"

SPELLINGS = [
    ("http://Engine-1.example:80/", "http://engine-1.example"),
    ("https://engine-1.example:443", "https://engine-1.example"),
    ("http://engine-1.example.:8000/metrics/", "http://engine-1.example:8000/metrics"),
    ("engine-1:8000", "http://engine-1:8000"),
    ("10.0.0.7:8000", "http://10.0.0.7:8000"),
    ("HTTP://10.0.0.7:8000//metrics", "http://10.0.0.7:8000/metrics"),
    ("http://[2001:DB8:0:0::1]:8000/", "http://[2001:db8::1]:8000"),
    ("http://[::ffff:10.0.0.7]:8000", "http://10.0.0.7:8000"),
    ("http://10.0.0.7:8000@3", "http://10.0.0.7:8000"),
    ("http://[2001:db8::1]:8000@0", "http://[2001:db8::1]:8000"),
    ("grpc://engine-1:20000/", "grpc://engine-1:20000"),
    ("  http://engine-1:8000  ", "http://engine-1:8000"),
]


@pytest.mark.parametrize(("written", "one"), SPELLINGS)
def test_spellings_of_one_address_are_one(written: str, one: str) -> None:
    assert identity.same_address(written) == one
    assert identity.same_address(one) == one, "the one spelling is stable"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("http://engine-1:8000", "http://engine-2:8000"),
        ("http://engine-1:8000", "http://engine-1:8001"),
        ("http://engine-1", "https://engine-1"),
        ("http://engine-1:443", "https://engine-1:443"),
        ("http://gateway:8000/a", "http://gateway:8000/b"),
    ],
)
def test_two_engines_stay_two(left: str, right: str) -> None:
    assert identity.same_address(left) != identity.same_address(right)


@given(st.text(max_size=40))
def test_any_text_has_one_stable_spelling(text: str) -> None:
    once = identity.same_address(text)
    assert identity.same_address(once) == once


def test_an_instance_label_is_joined_to_a_workers_address() -> None:
    assert identity.instance_key("http://Engine-1:8000/metrics") == "engine-1:8000"
    assert identity.instance_key("engine-1:8000") == "engine-1:8000"
    assert identity.instance_key("https://engine-1/metrics") == "engine-1:443"
    assert identity.instance_key("[2001:DB8::1]:8000") == "[2001:db8::1]:8000"


def test_a_rank_is_read_and_is_no_user_name() -> None:
    assert identity.rank_of("http://10.0.0.7:8000@3") == 3
    assert identity.rank_of("http://10.0.0.7:8000") is None


def test_ids_of_recorded_dynamo_places_are_joined() -> None:
    """Dynamo 1.6.1: worker ports write hexadecimal ids, the frontend the same ids in decimal."""
    text = {
        place: (RECORDED / f"dynamo-1.6.1-{place}-loaded.prom").read_text(encoding="utf-8")
        for place in ("frontend", "prefill-worker", "decode-worker")
    }
    gauges = re.findall(r'dynamo_frontend_worker_\w+\{.*?worker_id="(\w+)"', text["frontend"])
    ours = {
        identifier
        for place in ("prefill-worker", "decode-worker")
        for identifier in re.findall(r'worker_id="(\w+)"', text[place])
    }
    assert ours and not ours & set(gauges), "the recording has one form per place"
    decimal = {identity.canonical_id(one) for one in ours}
    assert decimal == {str(int(one, 16)) for one in ours}
    assert identity.canonical_id("7d7ba22a80a5cb18") == "9041998980307077912"
    assert identity.join_ids(["7d7ba22a80a5cb18", "7d7ba22a80a5cb2b"], sorted(set(gauges))) == {
        "7d7ba22a80a5cb18": "9041998980307077912",
        "7d7ba22a80a5cb2b": "9041998980307077931",
    }


def test_an_id_of_digits_only_is_read_as_its_place_writes_it() -> None:
    hexadecimal, decimal = "1234567812345678", str(0x1234567812345678)
    assert identity.canonical_id(hexadecimal) == hexadecimal
    assert identity.canonical_id(hexadecimal, is_hex=True) == decimal
    assert identity.join_ids([hexadecimal], [decimal]) == {hexadecimal: decimal}


def test_an_id_that_could_be_two_is_not_joined() -> None:
    text = "1234567812345678"
    assert identity.join_ids([text], [text, str(0x1234567812345678)]) == {}


def test_a_name_is_only_itself() -> None:
    assert identity.canonical_id("Worker-A ") == "worker-a"
    assert identity.join_ids(["worker-a"], ["worker-b"]) == {}


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_both_forms_of_an_id_are_one(number: int) -> None:
    written = f"{number:x}"
    assert identity.canonical_id(written, is_hex=True) == str(number)
    assert identity.canonical_id(str(number), is_hex=False) == str(number)


def test_a_gauge_of_a_worker_that_is_gone_is_left_out() -> None:
    values = {"http://engine-1:8000/": 64.0, "http://gone:8000": 64.0, "http://ENGINE-2:80": 32.0}
    known = ["http://engine-1:8000", "http://engine-2"]
    assert identity.of_inventory(values, known) == {
        "http://engine-1:8000": 64.0,
        "http://engine-2": 32.0,
    }


def test_the_exact_spelling_wins() -> None:
    values = {"http://engine-1:8000/": 1.0, "http://engine-1:8000": 2.0}
    assert identity.of_inventory(values, ["http://engine-1:8000"]) == {"http://engine-1:8000": 2.0}


def test_one_engine_listed_twice_is_named() -> None:
    listed = ["http://engine-1:80", "http://engine-1/", "http://engine-2"]
    assert identity.duplicates(listed) == {
        "http://engine-1": ("http://engine-1:80", "http://engine-1/")
    }


def test_a_routers_limit_of_a_worker_that_is_gone_is_not_the_pools() -> None:
    limits = gauge(**{"http://a:80/": 48, "http://gone:8000": 64})
    router = window("router", {**ROUTER, Signal.MAX_RUNNING: limits})
    found = figures(router, {"decode": window("decode", DECODE)})
    assert (found.decode.max_running.value, found.decode.max_running.place) == (48, Place.ROUTER)
