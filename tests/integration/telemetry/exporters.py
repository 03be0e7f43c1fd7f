"""Stand-ins of GPU and host exporters under their true names, written from the samples."""

from __future__ import annotations

from .metric_servers import Registry


class Dcgm(Registry):
    """One node's GPUs; `users` maps a GPU's index to the pod that uses it."""

    def __init__(self, node: str, users: dict[int, str], namespace: str = "default") -> None:
        super().__init__("rust")
        self.node, self.users, self.namespace = node, users, namespace
        self.code = 0
        self.joules = dict.fromkeys(users, 9_000_000.0)
        self.run(0)

    def gpu(self, index: int) -> dict[str, str]:
        labels = {"gpu": str(index), "UUID": f"GPU-{self.node}-{index}", "hostname": self.node}
        if self.users[index]:
            labels |= {"pod": self.users[index], "namespace": self.namespace, "container": "engine"}
        return labels

    def run(self, seconds: float, *, watts: float = 400, tensor: float = 0.6) -> None:
        """Let the GPUs run at a power for a while."""
        for index in self.users:
            self.joules[index] += seconds * watts
            labels = self.gpu(index)
            self.set(
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1000 * self.joules[index], **labels
            )  # fmt: skip
            self.set("DCGM_FI_DEV_POWER_USAGE", watts, **labels)
            self.set("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", tensor, **labels)
            self.set("DCGM_FI_PROF_DRAM_ACTIVE", 0.12, **labels)
            self.set("DCGM_FI_DEV_GPU_UTIL", 100, **labels)
            self.set("DCGM_FI_DEV_FB_USED", 130_000, **labels)
            self.set("DCGM_FI_DEV_XID_ERRORS", self.code if index == 0 else 0, **labels)


class NodeExporter(Registry):
    """One host with 4 CPUs and one link of 1 GB/s."""

    def __init__(self) -> None:
        super().__init__("rust")
        self.run(0, busy=0)

    def run(self, seconds: float, *, busy: float, load: float = 1.0) -> None:
        for cpu in range(4):
            self.add("node_cpu_seconds_total", seconds * (1 - busy), cpu=str(cpu), mode="idle")
            self.add("node_cpu_seconds_total", seconds * busy, cpu=str(cpu), mode="user")
        self.set("node_load1", load)
        self.set("node_memory_MemAvailable_bytes", 64e9)
        for name in ("receive", "transmit"):
            self.add(f"node_network_{name}_bytes_total", seconds * 1e8, device="eth0")
        self.set("node_network_speed_bytes", 1e9, device="eth0")
