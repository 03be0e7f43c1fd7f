"""The installation's own profiles: added, replacing, broken."""

from __future__ import annotations

import pytest

from apps.engines import loader
from apps.engines.window import Signal

NPU = (loader.FOLDER / "npu_exporter.yaml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    loader.configure(None)


def use(folder, name: str, text: str) -> None:
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    loader.configure(folder)


def test_a_new_engine_is_one_file(folder):
    use(folder, "my_npu", NPU.replace("profile: npu_exporter", "profile: my_npu")
        .replace("aliases: [npu-exporter]", "aliases: [house-npu]"))  # fmt: skip
    assert loader.load("House-NPU").profile == "my_npu"
    assert set(loader.names()) == {*loader.shipped_names(), "my_npu"}
    assert loader.own_names() == {"my_npu"}
    assert loader.problems() == ()


def test_a_file_of_the_same_name_replaces_the_shipped_profile(folder):
    text = (loader.FOLDER / "vllm.yaml").read_text(encoding="utf-8")
    use(folder, "vllm", text.replace('"vllm:num_requests_running"', '"house:running"'))
    (row,) = loader.load("vllm").rows(Signal.RUNNING, "decode")
    assert row.terms[0].any_of[0].name == "house:running"
    # What a Dynamo worker passes through follows its engine's profile.
    rows = loader.load("dynamo_component").rows(Signal.RUNNING, "decode")
    assert rows[0].terms[0].any_of[0].name == "house:running"
    loader.configure("")
    (row,) = loader.load("vllm").rows(Signal.RUNNING, "decode")
    assert row.terms[0].any_of[0].name == "vllm:num_requests_running"


@pytest.mark.parametrize(
    ("text", "line_of", "key", "words"),
    [
        (NPU.replace("unit: ratio", "unit: furlong"), "unit: furlong",
         "signals.device_utilisation.unit", "Input should be"),
        (NPU.replace("scope: device", "scope: device\nsurprise: 1"), "surprise: 1",
         "surprise", "remove it or correct its spelling"),
        (NPU.replace("    unit: W\n", "    unit: B\n"), "signals:", "", "not a gauge in 'B'"),
        (NPU.replace('versions: ">=3.0"', 'versions: "3 or later"'), "versions:", "versions",
         "write it like '>=0.12,<0.20'"),
        (NPU.replace("  device_energy: not exported; power is\n", ""), "", "", "device_energy"),
        (NPU.replace("profile: npu_exporter", "profile: other"), "profile: other", "profile",
         "name the file other.yaml"),
        (NPU.replace("scale: 0.01", "scale: -1"), "scale: -1",
         "signals.device_utilisation.rows.0.terms.0.any_of.0.scale", "greater than 0"),
        ("version: [1\n", "", "", "not YAML"),
        ("- a list\n", "", "", "a profile is a mapping"),
        ("", "", "", "a profile is a mapping"),
    ],
    ids=["unit", "key", "unit-of-signal", "versions", "forgotten", "name", "scale", "yaml", "list",
         "empty"],
)  # fmt: skip
def test_a_broken_file_is_named_with_its_line_and_key(folder, text, line_of, key, words):
    use(folder, "npu_exporter", text)
    (problem,) = loader.problems()
    assert problem.file == "npu_exporter.yaml"
    assert words in problem.reason
    if key:
        assert problem.key == key
        assert text.splitlines()[problem.line - 1].strip().startswith(line_of)
        assert f"npu_exporter.yaml, line {problem.line}, {key}: " in str(problem)
    # The shipped profile of that name stays.
    assert loader.load("npu_exporter").title == "Ascend npu-exporter"


def test_one_broken_file_takes_no_other_down(folder):
    (folder / "bad.yaml").write_bytes(b"\xff\xfe")
    (folder / "note.txt").write_text("not a profile")
    use(folder, "my_npu", NPU.replace("profile: npu_exporter", "profile: my_npu"))
    assert set(loader.names()) == {*loader.shipped_names(), "my_npu"}
    assert [p.file for p in loader.problems()] == ["bad.yaml"]


def test_a_profile_that_passes_through_an_unknown_engine_is_left_out(folder):
    text = (loader.FOLDER / "dynamo_component.yaml").read_text(encoding="utf-8")
    use(folder, "dynamo_component", text.replace("[vllm, sglang, trtllm]", "[vllm, nobody]"))
    assert "'nobody'" in loader.problems()[0].reason
    assert Signal.KV_TRANSFER_TIME in loader.load("dynamo").signals


@pytest.mark.parametrize("name", ["missing", "a-file"])
def test_a_folder_that_cannot_be_read_is_reported(folder, name):
    (folder / "a-file").write_text("x")
    loader.configure(folder / name)
    assert set(loader.names()) == set(loader.shipped_names())
    assert "cannot be read" in loader.problems()[0].reason


def test_a_file_too_large_is_not_read(folder):
    use(folder, "huge", "# " + "x" * 1_000_001)
    assert "longer than" in loader.problems()[0].reason
