"""Conversations as text or token counts, ShareGPT's JSON: what was said, not when.

    [{"id": "a", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", ...}]}]

Arrivals are assumed (`Assumptions`): conversations begin as a Poisson process, in the order of the
file; a turn follows the answer before after an exponential think time. As long as no replay says
how long an answer takes, it is taken to take no time.

A model's answer is a request: its prompt is everything before. Tokens: `tokens` of a message, if it
has that; else a token is 4 bytes of UTF-8 of a message, the last one maybe less. Four bytes a token
is the usual rule of thumb for English. Equal beginnings are then equal blocks; where messages have
token counts alone, no two conversations share anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np

from evictune_policies.algorithms.pool import NONE
from evictune_policies.replay.traces.assemble import Records, assemble
from evictune_policies.replay.traces.assumptions import DEFAULTS, Assumptions
from evictune_policies.replay.traces.files import Integer, decoded, invalid, refuse, whole
from evictune_policies.replay.traces.intern import UInt64
from evictune_policies.replay.traces.trace import Trace

CONVERSATIONS_PER_SECOND = 1.0  # unless `Assumptions` says otherwise
BYTES_PER_TOKEN = 4
_ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})


class Message(msgspec.Struct, rename={"author": "from"}):
    """One message."""

    author: str
    value: str = ""
    tokens: Integer | None = None

    @property
    def length(self) -> int:
        """Its tokens."""
        if self.tokens is not None:
            return self.tokens
        return -(-len(self.value.encode()) // BYTES_PER_TOKEN)


class Conversation(msgspec.Struct):
    """One conversation. Other fields are passed over."""

    conversations: list[Message]
    id: str | int = ""


def read(path: Path, assumptions: Assumptions = DEFAULTS) -> Trace:
    """Read conversations. Raises TraceError."""
    text = whole(path)
    try:
        conversations = decoded(msgspec.json.Decoder(list[Conversation]), text)
    except msgspec.DecodeError as error:
        raise invalid(path, text, error) from None
    records = Records(path, assumptions.block_tokens, ids_chained=False, identified=True)
    begins = assumptions.beginnings(len(conversations), CONVERSATIONS_PER_SECOND)
    answers = sum(len(conversation.conversations) for conversation in conversations)
    think_times = iter(assumptions.think_times(answers))
    for number, (conversation, begin) in enumerate(zip(conversations, begins, strict=True)):
        _check(path, number, conversation)
        _add(records, number, conversation.conversations, float(begin), think_times)
    return assemble(records, name=path.name)


def _check(path: Path, number: int, conversation: Conversation) -> None:
    for message in conversation.conversations:
        if message.tokens is not None and message.tokens < 0:
            raise refuse(
                path,
                "is negative",
                "correct it or take the conversation out",
                field=f"[{number}].conversations[].tokens",
                value=message.tokens,
            )


def _add(
    records: Records,
    number: int,
    messages: list[Message],
    begin: float,
    think_times: Iterator[float],
) -> None:
    """Add a conversation's answers, and a last question that has none."""
    ids = _ids(number, messages, records.block_tokens)
    ends = list(accumulate(message.length for message in messages))
    previous, arrival = NONE, begin
    for place, message in enumerate(messages):
        answer = message.author.lower() in _ANSWERS
        if not answer and place + 1 < len(messages):
            continue
        think = 0.0 if previous == NONE else float(next(think_times))
        arrival += think
        tokens = ends[place] if not answer else ends[place] - message.length
        blocks = -(-ends[place] // records.block_tokens)
        index = records.add(
            arrival,
            tokens,
            message.length if answer else None,
            ids[:blocks],
            ids_of_output=True,
            previous=previous,
            think=think,
        )
        previous = previous if index == NONE else index


def _ids(number: int, messages: list[Message], block_tokens: int) -> UInt64:
    """An id for each block of the conversation: of the text in it, or a number of its own."""
    total = sum(message.length for message in messages)
    blocks = -(-total // block_tokens)
    if any(message.tokens is not None for message in messages):
        return (np.uint64(number) << np.uint64(32)) + np.arange(blocks, dtype=np.uint64)
    # Each message fills its last token up, so that a block's text is its tokens'.
    text = b"".join(
        message.value.encode().ljust(message.length * BYTES_PER_TOKEN, b"\0")
        for message in messages
    )
    size = block_tokens * BYTES_PER_TOKEN
    digests = b"".join(
        hashlib.blake2b(text[begin : begin + size], digest_size=8).digest()
        for begin in range(0, len(text), size)
    )
    return np.frombuffer(digests, np.uint64)
