"""What the demo engines understand of OpenAI chat completions, and the bytes they answer with."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from apps.simulation.demo.http import BadRequest

CHARS_PER_TOKEN = 4
EVENT_STREAM = "text/event-stream"
DEFAULT_OUTPUT = 128
DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class ChatRequest:
    """The parts of a chat request that decide the work: tokens in, tokens out, how to answer."""

    id: str
    model: str
    prompt_tokens: int
    output_tokens: int
    stream: bool
    usage_wanted: bool
    raw: dict[str, Any]


def parse_chat(body: dict[str, Any], request_id: str, default_model: str) -> ChatRequest:
    """Read a chat body. A token is four characters of message text; output length is `max_tokens`,
    as with `ignore_eos`. BadRequest when a field has the wrong type."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list that is not empty")
    characters = 0
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            raise BadRequest("every message needs content in text")
        characters += len(content)
    wanted = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_OUTPUT
    if not isinstance(wanted, int) or wanted < 1:
        raise BadRequest("max_tokens must be a positive whole number")
    options = body.get("stream_options")
    return ChatRequest(
        id=request_id,
        model=str(body.get("model") or default_model),
        prompt_tokens=max(1, -(-characters // CHARS_PER_TOKEN)),
        output_tokens=wanted,
        stream=body.get("stream") is True,
        usage_wanted=isinstance(options, dict) and options.get("include_usage") is True,
        raw=body,
    )


class EventWriter:
    """Prebuilt pieces of one answer, so that an event costs one concatenation."""

    __slots__ = ("_chat", "_created", "_head")

    def __init__(self, chat: ChatRequest) -> None:
        self._chat = chat
        self._created = int(time.time())
        head = {
            "id": chat.id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": chat.model,
        }
        self._head = b"data: " + json.dumps(head)[:-1].encode()

    def tokens(self, count: int, *, last: bool) -> bytes:
        """One event that carries `count` tokens of text."""
        return (
            self._head
            + b', "choices": [{"index": 0, "delta": {"content": "'
            + b"tok " * count
            + b'"}, "finish_reason": '
            + (b'"length"' if last else b"null")
            + b"}]}\n\n"
        )

    def end(self, output_tokens: int) -> bytes:
        """What follows the last token: the usage event if it was asked for, then [DONE]."""
        if not self._chat.usage_wanted:
            return DONE
        usage = json.dumps(self._usage(output_tokens)).encode()
        return self._head + b', "choices": [], "usage": ' + usage + b"}\n\n" + DONE

    def whole(self, output_tokens: int, extra: dict[str, object] | None = None) -> bytes:
        """The answer to a request that does not stream."""
        message = {"role": "assistant", "content": "tok " * output_tokens}
        return json.dumps(
            {
                "id": self._chat.id,
                "object": "chat.completion",
                "created": self._created,
                "model": self._chat.model,
                "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
                "usage": self._usage(output_tokens),
                **(extra or {}),
            }
        ).encode()

    def _usage(self, output_tokens: int) -> dict[str, int]:
        prompt = self._chat.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output_tokens,
            "total_tokens": prompt + output_tokens,
        }
