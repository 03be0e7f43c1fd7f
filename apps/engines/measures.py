"""What kind of quantity each signal is and in which unit it is kept, for every profile alike.

A profile repeats both, so that a row in milliseconds or MiB without its `scale` stands out beside
the unit; the schema refuses a profile that disagrees with this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from apps.common.units import Unit

from .window import Kind, Signal

S = Signal


def _all(kind: Kind, unit: Unit, *signals: Signal) -> Iterable[tuple[Signal, tuple[Kind, Unit]]]:
    return [(signal, (kind, unit)) for signal in signals]


#: Kind and unit of each signal. Counts, fault codes and load averages are dimensionless.
MEASURES: Final[Mapping[Signal, tuple[Kind, Unit]]] = dict(
    (
        *_all(
            Kind.COUNTER, Unit.COUNT,
            S.REQUESTS_ARRIVED, S.REQUESTS_COMPLETED, S.REQUESTS_FAILED, S.REQUESTS_ABORTED,
            S.REQUESTS_REJECTED, S.PREEMPTIONS, S.TRANSFER_FAILURES, S.STALE_KV_SERVED,
            S.HOST_NETWORK_ERRORS, S.HOST_RDMA_WAIT, S.HOST_LINK_DOWNS,
        ),
        *_all(
            Kind.COUNTER, Unit.TOKENS,
            S.INPUT_TOKENS, S.OUTPUT_TOKENS, S.CACHED_TOKENS, S.COMPUTED_TOKENS,
            S.TRANSFERRED_TOKENS,
        ),
        *_all(
            Kind.COUNTER, Unit.BYTES,
            S.KV_TRANSFER_BYTES, S.HOST_NETWORK_RX, S.HOST_NETWORK_TX, S.HOST_RDMA_RX,
            S.HOST_RDMA_TX,
        ),
        *_all(Kind.COUNTER, Unit.SECONDS, S.FORWARD_SECONDS, S.HOST_CPU_BUSY),
        *_all(Kind.COUNTER, Unit.JOULES, S.DEVICE_ENERGY),
        *_all(
            Kind.HISTOGRAM, Unit.SECONDS,
            S.TTFT, S.TPOT, S.ITL, S.E2E, S.QUEUE_TIME, S.PREFILL_TIME, S.KV_TRANSFER_TIME,
            S.LEG_TTFT,
        ),
        *_all(
            Kind.HISTOGRAM, Unit.TOKENS, S.INPUT_LENGTH, S.OUTPUT_LENGTH, S.UNCACHED_LENGTH,
        ),
        *_all(
            Kind.GAUGE, Unit.COUNT,
            S.RUNNING, S.WAITING, S.WAITING_TRANSFER, S.WAITING_CAPACITY, S.MAX_RUNNING,
            S.WORKER_HEALTH, S.DEVICE_FAULT_CODE, S.DEVICE_FAULTS, S.HOST_CPUS, S.HOST_LOAD,
        ),
        *_all(
            Kind.GAUGE, Unit.RATIO,
            S.KV_USED, S.DEVICE_TENSOR_ACTIVE, S.DEVICE_DRAM_ACTIVE, S.DEVICE_SM_ACTIVE,
            S.DEVICE_UTILISATION,
        ),
        *_all(Kind.GAUGE, Unit.TOKENS, S.KV_CAPACITY_TOKENS),
        *_all(
            Kind.GAUGE, Unit.BYTES,
            S.DEVICE_MEMORY_USED, S.DEVICE_MEMORY_FREE, S.HOST_MEMORY_AVAILABLE,
        ),
        *_all(
            Kind.GAUGE, Unit.BYTES_PER_SECOND,
            S.DEVICE_NVLINK_RATE, S.DEVICE_PCIE_RATE, S.HOST_NETWORK_SPEED, S.HOST_RDMA_SPEED,
        ),
        *_all(Kind.GAUGE, Unit.WATTS, S.DEVICE_POWER),
    )
)  # fmt: skip


def kind_of(signal: Signal) -> Kind:
    return MEASURES[signal][0]


def unit_of(signal: Signal) -> Unit:
    return MEASURES[signal][1]
