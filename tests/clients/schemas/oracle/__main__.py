"""Records what Avro's Java classes say and read: a part of `make oracle`. I/O: Java, with pyspark's jars.

`avro_verdicts.json`: name of a pair -> the incompatibilities, in order, as `location: kind`; or an error.
`avro_levels.json`: name of a new version -> a digit for each level, 1 where `SchemaValidator` accepts it; "refused" for
what is no schema, "differ" where that class and `SchemaCompatibility`, which Confluent's servers ask, do not agree.
`avro_values.xz`: a line for each of `avro_questions`, the value that `GenericDatumReader` reads, or an error.
"""

from __future__ import annotations

import json
import lzma
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.clients.schemas.oracle.avro_families import Json, chains, pairs
from tests.clients.schemas.oracle.avro_questions import questions

HERE = Path(__file__).resolve().parent
RECORDED_VALUES = HERE / "avro_values.xz"
RECORDED_SEED, RECORDED = 1, 4_000


def main() -> None:
    asked, chained = pairs(), chains()
    answers = answered([{"reader": reader, "writer": writer} for _, reader, writer in asked])
    write("avro_verdicts", {
        name: answer.get("error", answer["incompatibilities"])
        for (name, _, _), answer in zip(asked, answers, strict=True)
    })  # fmt: skip
    answers = answered([{"new": new, "earlier": earlier} for _, new, earlier in chained])
    write("avro_levels", {
        name: answer.get("accepted", "refused") for (name, _, _), answer in zip(chained, answers, strict=True)
    })  # fmt: skip
    read = answered([each._asdict() for each in questions(RECORDED_SEED, RECORDED)], "AvroValues")
    lines = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in read)
    RECORDED_VALUES.write_bytes(lzma.compress(lines.encode(), preset=9))


def recorded_values() -> list[Json]:
    """The answers to `questions(RECORDED_SEED, RECORDED)`."""
    return [json.loads(line) for line in lzma.decompress(RECORDED_VALUES.read_bytes()).splitlines()]


def answered(asked: Sequence[Json], program: str = "AvroVerdicts") -> list[Json]:
    """What Avro's classes answer, a line for each question."""
    lines = "".join(json.dumps(question) + "\n" for question in asked)
    jars = Path(pyspark.__file__).parent / "jars"
    command = ["java", "-cp", f"{jars}/*", str(HERE / f"{program}.java")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise SystemExit(f"the oracle failed:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def write(name: str, verdicts: Mapping[str, object]) -> None:
    text = ",\n".join(f"{json.dumps(key)}: {json.dumps(found)}" for key, found in verdicts.items())
    (HERE / f"{name}.json").write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
