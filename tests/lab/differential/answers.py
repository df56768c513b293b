"""What Kafka answered to the scripts. I/O: the file `kafka_answers.xz`, JSON lines of script, step, answer."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent / "kafka_answers.xz"

Answers = Mapping[str, Any]
"""The answers by step."""


def write_answers(by_script: Mapping[str, Answers]) -> None:
    lines = [
        json.dumps([script, step, answer], separators=(",", ":")) + "\n"
        for script, answers in by_script.items()
        for step, answer in answers.items()
    ]
    FILE.write_bytes(lzma.compress("".join(lines).encode(), preset=9))


def recorded_answers() -> dict[str, dict[str, Any]]:
    """The answers by script and step."""
    found: dict[str, dict[str, Any]] = {}
    for line in lzma.decompress(FILE.read_bytes()).splitlines():
        script, step, answer = json.loads(line)
        found.setdefault(script, {})[step] = answer
    return found
