"""Records the verdicts of Avro's Java class on `avro_families`: part of `make oracle`. I/O: Java, with pyspark's jars.

`avro_verdicts.json`: name of a pair -> the incompatibilities, in order, as `location: kind`; or an error.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyspark

from tests.clients.schemas.oracle.avro_families import pairs

HERE = Path(__file__).resolve().parent


def main() -> None:
    asked = pairs()
    lines = "".join(json.dumps({"reader": reader, "writer": writer}) + "\n" for _, reader, writer in asked)
    jars = Path(pyspark.__file__).parent / "jars"
    command = ["java", "-cp", f"{jars}/*", str(HERE / "AvroVerdicts.java")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise SystemExit(f"the oracle failed:\n{done.stderr[-4000:]}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    verdicts = {
        name: answer.get("error", answer["incompatibilities"])
        for (name, _, _), answer in zip(asked, answers, strict=True)
    }
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in verdicts.items())
    (HERE / "avro_verdicts.json").write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
