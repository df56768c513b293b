"""`make differential-spark`: runs the cases on Kafka and on stratalog, and compares. I/O: Maven, Java, Spark, folders.

Ends with 1 if something differs. `--write` brings docs/spark-options.json up to date. With names of cases only these
are run.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import traceback
from pathlib import Path

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from stratalog import Cluster, stratalog_session
from tests.lab.bench.peer.kafka import Kafka, fetch_jars, spark_jars
from tests.lab.differential.spark import table
from tests.lab.differential.spark.cases import CASES, Case, refusals
from tests.lab.differential.spark.sides import PARTITIONS, KafkaSide, OurSide, Side

OPTIONS = Path(__file__).parents[4] / "docs" / "spark-options.json"
KAFKA = {"auto.create.topics.enable": "true", "num.partitions": PARTITIONS, "default.replication.factor": 3}
IN_OWN_WORDS = ("an overwrite", "a schema")
"""Refusals that name the format, or that Spark itself makes of Kafka's."""
HEAP = ("-Xms256m", "-Xmx512m")


def is_equal(case: Case, theirs: Side, ours: Side) -> bool:
    """Run a case on both sides; print how they differ."""
    try:
        frames = [case.run(side).cache() for side in (theirs, ours)]
        assert_df_equality(*frames, ignore_row_order=True)
    except Exception:  # noqa: BLE001 - the other cases are run, too
        print(f"differs: {case.name}")
        traceback.print_exc(limit=4)
        return False
    print(
        f"equal:   {case.name}: {frames[0].count()} rows, options {', '.join(case.options) or 'of the cluster alone'}"
    )
    for frame in frames:
        frame.unpersist()
    return True


def refuse_alike(theirs: Side, ours: Side) -> bool:
    """Whether both refuse the same, and ours in Kafka's words with more behind them."""
    are_alike = True
    there, here = refusals(theirs), refusals(ours)
    for name, text in there.items():
        in_its_words = without_numbers(core_of(text)) in without_numbers(here[name])
        is_alike = bool(text) and (in_its_words or (name in IN_OWN_WORDS and bool(here[name])))
        are_alike &= is_alike
        print(f"{'alike:  ' if is_alike else 'differs:'} refusal of {name}: {core_of(text)}")
        if not is_alike:
            print(f"         here: {here[name]}")
    return are_alike


def core_of(text: str) -> str:
    """A refusal of Kafka's connector without Spark's words around it, nor those of py4j's."""
    text = text.partition("JVM stacktrace")[0].partition(" at org.apache.")[0]
    for prefix in ("requirement failed: ", "KafkaIllegalStateException: "):
        text = text.partition(prefix)[2] or text
    return text.partition(" SQLSTATE")[0].strip().rstrip(".")


def without_numbers(text: str) -> str:
    """Which partition is named first, and the time now, differ from run to run."""
    return re.sub(r"\d+", "#", text)


def compare(spark: SparkSession, folder: Path, names: list[str]) -> bool:
    """Whether nothing differs."""
    settings = {name: str(value).lower() for name, value in KAFKA.items()}
    with (
        Kafka.start(folder / "kafka", heap=HEAP, settings=settings) as kafka,
        Cluster.start(folder / "stratalog", brokers=3, fetcher="thread") as cluster,
    ):
        theirs, ours = KafkaSide(spark, folder, kafka), OurSide(spark, folder, cluster)
        wanted = [case for case in CASES if not names or case.name in names]
        results = [is_equal(case, theirs, ours) for case in wanted]
        if not names or table.REFUSALS in names:
            results.append(refuse_alike(theirs, ours))
        return all(results)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.lab.differential.spark")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(case.name for case in CASES)}, {table.REFUSALS}")
    parser.add_argument("--write", action="store_true", help="only write docs/spark-options.json")
    given = parser.parse_args()
    if given.write:
        OPTIONS.write_text(table.as_json(), encoding="utf-8")
        return 0
    fetch_jars()
    spark = stratalog_session("differential", extra={"spark.jars": spark_jars(), "spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as folder:
        is_alike = compare(spark, Path(folder), given.cases)
    spark.stop()
    return 0 if is_alike else 1


if __name__ == "__main__":
    sys.exit(main())
