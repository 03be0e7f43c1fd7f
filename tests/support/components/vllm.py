"""A real vLLM on the CPU: a small random model, no weights, no hub.

`vllm` has to be on PATH; how it gets there is in docs/how-to/run-real-vllm-on-a-cpu.md.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.components.dynamo import model_folder
from tests.support.components.process import OFFLINE, Component, answers, ports
from tools.services import find

MODEL = "tiny-llama"
#: Two cores that do other things too take two minutes.
READY_S = 300.0
_SMALL = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
}


@contextmanager
def vllm(folder: Path) -> Iterator[str]:
    """One engine that does both phases; yields its address."""
    program = find("vllm")
    assert program, "vllm is not on PATH"
    model = folder / "model"
    shutil.copytree(model_folder(), model)
    config = model / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **_SMALL}))
    (port,) = ports(1)
    url = f"http://127.0.0.1:{port}"
    process = Component(
        "vllm",
        [program, "serve", model, "--served-model-name", MODEL, "--load-format", "dummy",
         "--seed", "0", "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16",
         "--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "16",
         "--block-size", "32", "--shutdown-timeout", "5"],
        lambda: answers(f"{url}/health"),
        folder,
        {
            **OFFLINE,
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            # Threads that wait must not spin: there are two cores for all of this.
            "KMP_BLOCKTIME": "0",
            "OMP_WAIT_POLICY": "PASSIVE",
        },
    )  # fmt: skip
    try:
        process.start()
        process.wait_ready(READY_S)
        yield url
    finally:
        process.ask_to_end()
        process.stop(8)
