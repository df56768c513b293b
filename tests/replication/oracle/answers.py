"""Kafka's recorded answers. I/O: files beside this one."""

from __future__ import annotations

import json
import lzma
import struct
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def write_answers(name: str, content: bytes) -> None:
    (HERE / f"{name}.xz").write_bytes(lzma.compress(content, preset=9))


def recorded_lines(name: str) -> list[dict[str, Any]]:
    """Answers recorded as JSON lines, in the order of their questions."""
    return [json.loads(line) for line in lzma.decompress((HERE / f"{name}.xz").read_bytes()).splitlines()]


def recorded_hashes(count: int) -> tuple[list[int], list[int]]:
    """murmur2 of `count` keys, and the coordinator's partition of `count` group ids."""
    numbers = struct.unpack(f">{count}i{count}B", lzma.decompress((HERE / "hashes.xz").read_bytes()))
    return list(numbers[:count]), list(numbers[count:])
