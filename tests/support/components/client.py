"""A client that keeps the truth: what it sent and what came back, request by request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import requests

CHAT = "/v1/chat/completions"
#: Longer than any answer here takes.
PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One chat request: `words` of prompt, `output` tokens wanted. `leave_after`: go away after so
    many bytes of the answer."""

    words: int
    output: int
    stream: bool = True
    leave_after: int = 0
    patience_s: float = PATIENCE_S


@dataclass(frozen=True, slots=True)
class Answer:
    """What came. `outcome`: `ok` (whole, with its usage), `refused` (an error status), `cut` (the
    stream ended without its usage), `left` (we went away), `timeout`."""

    outcome: str
    status: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the answers that came whole."""

    sent: int
    ok: int
    prompt_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Totals:
        whole = [answer for answer in answers if answer.outcome == "ok"]
        return cls(
            len(answers),
            len(whole),
            sum(answer.prompt_tokens for answer in whole),
            sum(answer.output_tokens for answer in whole),
        )


def send(url: str, model: str, asks: Sequence[Ask], at_once: int = 4) -> list[Answer]:
    """All requests, `at_once` at a time; answers in the order of the requests."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda ask: one(url, model, ask), asks))


def one(url: str, model: str, ask: Ask, on_bytes: Callable[[int], None] | None = None) -> Answer:
    """One request; `on_bytes` is told how much of the answer has come so far."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": " ".join(f"word{i}" for i in range(ask.words))}],
        "max_tokens": ask.output,
        "ignore_eos": True,
        "stream": ask.stream,
    }
    if ask.stream:
        body["stream_options"] = {"include_usage": True}
    data = b""
    try:
        with requests.post(url + CHAT, json=body, timeout=ask.patience_s, stream=True) as answer:
            if answer.status_code != 200:
                return Answer("refused", answer.status_code, text=answer.text[:300])
            for chunk in answer.iter_content(None):
                data += chunk
                if on_bytes is not None:
                    on_bytes(len(data))
                if ask.leave_after and len(data) >= ask.leave_after:
                    return Answer("left", 200)
    except requests.Timeout:
        return Answer("timeout")
    except requests.RequestException:
        return Answer("cut", 200 if data else 0)
    return _read(data, ask.stream)


def _read(data: bytes, stream: bool) -> Answer:
    usage = None
    if stream:
        for event in data.decode().split("\n\n"):
            text = event.removeprefix("data: ").strip()
            if not text.startswith("{"):
                continue
            found = json.loads(text)
            if "error" in found:
                return Answer("cut", 200, text=text[:300])
            usage = found.get("usage") or usage
    else:
        usage = json.loads(data).get("usage")
    if not usage:
        return Answer("cut", 200)
    return Answer("ok", 200, usage["prompt_tokens"], usage["completion_tokens"])
