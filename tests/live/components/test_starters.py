"""The starters themselves: what is not ready says why, and whatever happens, nothing stays."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.support.components.process import Component, NotReady, ports, running
from tools import components, services

pytestmark = pytest.mark.live

SLEEPER = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


def component(folder: Path, code: str, name: str = "one", ready: bool = True) -> Component:
    """Ready as soon as it wrote something, or never."""
    log = folder / f"{name}.log"
    return Component(
        name, [sys.executable, "-c", code], lambda: ready and log.read_text() != "", folder
    )


def pid_of(folder: Path, name: str = "one") -> int:
    return int((folder / f"{name}.log").read_text())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_that_ends_at_its_start_shows_its_log(tmp_path):
    found = component(tmp_path, "import sys; sys.exit('the port is taken')", ready=False)
    with pytest.raises(NotReady, match="one ended with 1:\nthe port is taken"), running([found]):
        pytest.fail("it cannot be ready")


def test_one_that_is_never_ready_is_stopped_at_the_deadline(tmp_path):
    found = component(tmp_path, SLEEPER, ready=False)
    found.start()
    with pytest.raises(NotReady, match="not ready in 1 s"):
        found.wait_ready(1)
    assert found.is_running
    found.stop(0)
    assert not is_alive(pid_of(tmp_path))


def test_all_are_stopped_when_the_test_fails(tmp_path):
    both = [component(tmp_path, SLEEPER, "first"), component(tmp_path, STUBBORN, "second")]
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="a test"), running(both):
        pids = [pid_of(tmp_path, one.name) for one in both]
        assert all(is_alive(pid) for pid in pids)
        raise RuntimeError("a test failed")
    assert not any(is_alive(pid) for pid in pids)
    assert time.monotonic() - started < 20


def test_the_others_are_stopped_when_one_does_not_start(tmp_path):
    good = component(tmp_path, SLEEPER, "good")
    bad = component(tmp_path, "raise SystemExit(3)", "bad", ready=False)
    with pytest.raises(NotReady, match="bad ended with 3"), running([good, bad]):
        pytest.fail("it cannot be ready")
    assert not good.is_running


def test_ports_are_given_away_once():
    first, second = ports(8), ports(8)
    assert len({*first, *second}) == 16


def test_an_environment_is_ready_only_for_the_lock_it_was_made_of(monkeypatch, tmp_path):
    """Nothing is installed: the stamp alone decides."""
    monkeypatch.setattr(components, "FOLDER", tmp_path)
    monkeypatch.setattr(components, "ROOT", tmp_path)
    (tmp_path / "lock.txt").write_text("one==1")
    found = components.Component("one", "One", "lock.txt", ())
    monkeypatch.setitem(components.COMPONENTS, "one", found)
    assert not components.is_ready("one")
    found.python.parent.mkdir(parents=True)
    found.python.touch()
    components._stamp_file(found).write_text(components._stamp(found))
    assert components.is_ready("one")
    assert components.make("one") == ""
    (tmp_path / "lock.txt").write_text("one==2")
    assert not components.is_ready("one")


def test_what_cannot_be_installed_is_missing_and_says_so(monkeypatch, tmp_path, capsys):
    """A line without its hash is refused before anything is looked up."""
    monkeypatch.setattr(components, "FOLDER", tmp_path)
    monkeypatch.setattr(components, "ROOT", tmp_path)
    (tmp_path / "lock.txt").write_text("nothing-of-this-name==1.0\n")
    found = components.Component("nothing", "Nothing", "lock.txt", ())
    monkeypatch.setitem(components.COMPONENTS, "nothing", found)
    monkeypatch.setitem(services.SERVICES, "nothing", services.Service("Nothing", (), ()))
    assert services.install_missing(["nothing"]) == ["nothing"]
    assert "Nothing could not be installed" in capsys.readouterr().out
    assert not services.has("nothing")
