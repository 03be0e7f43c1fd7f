"""Ascend's npu-exporter. Values are written by hand; names, labels and the timestamp after each
value are those of the exposition in the exporter's own tests."""

from __future__ import annotations

import pytest

from apps.engines import loader
from apps.engines.evaluate import evaluate
from apps.engines.readings import read
from apps.engines.scraped import ScrapedReader
from apps.engines.window import Signal

TEXT = """
machine_npu_nums 2
npu_chip_info_utilization{id="0",vdie_id="A0",model_name="910B3",pod_name="p-0"} 80 1606402000
npu_chip_info_utilization{id="1",vdie_id="A1",model_name="910B3",pod_name="p-0"} 60 1606402000
npu_chip_info_power{id="0",vdie_id="A0"} 310.5 1606402000
npu_chip_info_power{id="1",vdie_id="A1"} -1 1606402000
npu_chip_info_hbm_used_memory{id="0",vdie_id="A0"} 60000 1606402000
npu_chip_info_hbm_used_memory{id="1",vdie_id="A1"} 61000 1606402000
npu_chip_info_hbm_total_memory{id="0",vdie_id="A0"} 65536 1606402000
npu_chip_info_hbm_total_memory{id="1",vdie_id="A1"} 65536 1606402000
npu_chip_info_error_code{id="0",vdie_id="A0"} 0 1606402000
npu_chip_info_error_code{id="1",vdie_id="A1"} 110 1606402000
"""


def signals(text: str) -> dict[Signal, float]:
    profile = loader.load("npu-exporter")
    reader = ScrapedReader(profile, "device", [read(text, profile)])
    found = evaluate(profile, "device", reader)
    return {signal: sum((part.parts or {}).values()) for signal, part in found.items()}


def test_figures_have_the_signals_units():
    assert signals(TEXT) == {
        Signal.DEVICE_UTILISATION: pytest.approx(0.7),
        Signal.DEVICE_POWER: 310.5,  # -1 means that the driver gave none
        Signal.DEVICE_MEMORY_USED: (60_000 + 61_000) * 1_048_576,
        Signal.DEVICE_MEMORY_FREE: (2 * 65_536 - 60_000 - 61_000) * 1_048_576,
        Signal.DEVICE_FAULT_CODE: 110,
    }


def test_chips_without_high_bandwidth_memory_report_their_own():
    text = """
npu_chip_info_used_memory{id="0"} 1000
npu_chip_info_total_memory{id="0"} 8000
"""
    assert signals(text) == {
        Signal.DEVICE_MEMORY_USED: 1_000 * 1_048_576,
        Signal.DEVICE_MEMORY_FREE: 7_000 * 1_048_576,
    }


def test_a_pod_is_named_by_the_exporters_own_label_first():
    assert loader.load("npu_exporter").join["pod"] == ("exported_pod_name", "pod_name")
