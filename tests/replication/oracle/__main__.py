"""Records what Kafka's own classes answer: `make oracle`. I/O: Maven fetches Kafka once, Java runs its classes.

The answers lie beside this file, xz-compressed: `hashes` as 10,000 int32 of
murmur2 and 10,000 bytes of coordinator partitions, the others as JSON lines. The questions come from seeds.
"""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.bench.peer.kafka import LIBS, fetch_jars
from tests.replication.oracle import questions, server_questions
from tests.replication.oracle.answers import write_answers

HERE = Path(__file__).resolve().parent


def ask(asked: Sequence[dict[str, Any]], program: str = "Oracle") -> list[dict[str, Any]]:
    """Kafka's answers, one per question."""
    lines = "".join(json.dumps(question) + "\n" for question in asked)
    command = ["java", "-Dorg.apache.logging.log4j.level=OFF", "-cp", f"{LIBS}/*", str(HERE / f"{program}.java")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise SystemExit(f"the oracle failed:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    fetch_jars()
    write_answers("assignors", json_lines(ask(questions.group_shapes())))
    write_answers("targets", json_lines(ask(server_questions.target_shapes(), "ServerOracle")))
    write_answers("records", json_lines(ask(server_questions.record_sets(), "ServerOracle")))
    write_answers("protocol", json_lines(ask(questions.protocol_messages())))
    hashes = [
        answer["hash"] for answer in ask([{"kind": "murmur2", "key": key.hex()} for key in questions.murmur2_keys()])
    ]
    partitions = [
        answer["partition"] for answer in ask([{"kind": "group", "id": name} for name in questions.group_ids()])
    ]
    write_answers("hashes", struct.pack(f">{len(hashes)}i{len(partitions)}B", *hashes, *partitions))


def json_lines(values: Sequence[Any]) -> bytes:
    return "".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values).encode()


if __name__ == "__main__":
    main()
