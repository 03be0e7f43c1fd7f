from __future__ import annotations

import pytest

from apps.common.secretbox import SecretBox, SecretUnreadable


def test_a_secret_opens_only_at_its_place() -> None:
    box = SecretBox(["key-one"])
    sealed = box.seal("router admin key", bound_to="fleet.backend:1:credential")
    assert "router" not in sealed
    assert box.open(sealed, bound_to="fleet.backend:1:credential") == "router admin key"
    with pytest.raises(SecretUnreadable, match="does not belong"):
        box.open(sealed, bound_to="fleet.backend:2:credential")


def test_rotation_old_keys_open_and_the_newest_seals() -> None:
    old = SecretBox(["old"])
    sealed = old.seal("s", bound_to="x")
    both = SecretBox(["new", "old"])
    resealed = both.reseal(sealed, bound_to="x")
    assert SecretBox(["new"]).open(resealed, bound_to="x") == "s"
    with pytest.raises(SecretUnreadable, match="is not configured"):
        SecretBox(["new"]).open(sealed, bound_to="x")


@pytest.mark.parametrize("text", ["", "v1.x", "v2.a.b", "v1.abcdefgh.AAAA"])
def test_rubbish_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(SecretUnreadable):
        SecretBox(["k"]).open(text, bound_to="x")
