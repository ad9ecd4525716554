"""Reads a trace in any of the formats; finds out which one it is."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec

from evictune_policies.replay.traces import conversations, kvcache_tester, lengths, mooncake, native
from evictune_policies.replay.traces.assumptions import DEFAULTS, Assumptions
from evictune_policies.replay.traces.files import TraceError, beginning, decoded, lines, refuse
from evictune_policies.replay.traces.trace import Trace

__all__ = ["FORMATS", "TraceError", "detected", "read_trace"]

FORMATS = {
    "native": "this project's own request log, JSON Lines",
    "mooncake": "Mooncake, JSON Lines",
    "kv-cache-tester": "agentic sessions, a JSON file each, or a directory of them",
    "lengths": "times and lengths, CSV with a header, such as Azure's",
    "conversations": "texts or token counts of conversations, JSON, such as ShareGPT's",
}


def read_trace(path: Path, format_name: str = "auto", assumptions: Assumptions = DEFAULTS) -> Trace:
    """Read the trace at `path`, a file (gzip and xz accepted) or a directory of sessions.

    format_name: one of FORMATS, or auto. Raises TraceError.
    """
    if not path.exists():
        raise refuse(path, "does not exist", "give the path of a trace")
    if format_name == "auto":
        format_name = detected(path)
    if path.is_dir() and format_name != "kv-cache-tester":
        raise refuse(path, "is a directory", f"give a file for the format {format_name}")
    match format_name:
        case "native":
            return native.read(path)
        case "mooncake":
            return mooncake.read(path)
        case "kv-cache-tester":
            return kvcache_tester.read(path, assumptions)
        case "lengths":
            return lengths.read(path, assumptions)
        case "conversations":
            return conversations.read(path, assumptions)
    raise refuse(
        path, f"unknown format {format_name!r}", f"use auto or one of {', '.join(FORMATS)}"
    )


def detected(path: Path) -> str:
    """The format, told from the first line, or from the beginning if all is on one line.

    Raises TraceError if it is none of them.
    """
    if path.is_dir():
        return "kv-cache-tester"
    repairs: Counter[str] = Counter()
    first = next((line for _, line, _ in lines(path, repairs)), b"")
    if repairs["truncated"]:
        raise refuse(path, "is cut off within its first line", "copy the file again")
    if not first:
        raise refuse(path, "is empty", "give a trace with at least one request")
    try:
        record = decoded(msgspec.json.Decoder(), first)
    except msgspec.DecodeError:
        record = None
    if isinstance(record, dict):
        # Another version of it is refused by the one who knows which there are.
        if str(record.get("schema")).startswith(native.SCHEMA.rpartition("/")[0]):
            return "native"
        if "hash_ids" in record and "requests" not in record:
            return "mooncake"
    start = beginning(path, 4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{") and re.search(rb'"(requests|hash_id_scope)"\s*:', start):
        return "kv-cache-tester"
    if start.startswith(b"["):
        return "conversations"
    header = first.lower()
    if not start.startswith(b"{") and b"," in header and b"token" in header.replace(b"_", b""):
        return "lengths"
    raise refuse(path, "is in none of the known formats", f"name it: --format {'|'.join(FORMATS)}")
