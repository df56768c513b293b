"""`make differential-values`: reads random values of random schemas, and compares. I/O: Java, Spark, Maven Central.

Ends with 1 if something differs that `known` does not name. One seed is one run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from stratalog import SchemaRegistryClient, stratalog_session
from stratalog.replication.spark.session import SPARK_DEFAULTS, parse_spark_defaults
from tests.clients.schemas.registry_server import RegistryServer
from tests.lab.differential.values import avro, entries, growth, json_text, messages, protobuf, variants, written
from tests.lab.differential.values.known import Tally

SPARK_AVRO = f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"
SHARES = {"avro": 0.37, "growth": 0.1, "protobuf": 0.2, "json": 0.25, "variant": 0.07, "entries": 0.01}


def session() -> SparkSession:
    """A session with Spark's Avro module, which is a jar of its own."""
    packages = parse_spark_defaults(SPARK_DEFAULTS.read_text(encoding="utf-8"))["spark.jars.packages"]
    extra = {"spark.jars.packages": f"{packages},{SPARK_AVRO}", "spark.sql.timeType.enabled": "true"}
    return stratalog_session("values", extra=extra)


def judge_avro(spark: SparkSession, seed: int, count: int, tally: Tally) -> None:
    cases = avro.drawn(seed, count)
    with RegistryServer(avro.registered(cases)) as server:
        avro.judge(spark, SchemaRegistryClient({"url": server.url}), cases, tally)
    written.judge_avro(cases, tally)


def judge_growth(spark: SparkSession, seed: int, count: int, tally: Tally) -> None:
    del spark
    growth.judge(growth.drawn(seed, count), tally)


def judge_protobuf(spark: SparkSession, seed: int, count: int, tally: Tally) -> None:
    cases = messages.drawn(seed, count)
    with RegistryServer(protobuf.registered(cases)) as server:
        protobuf.judge(spark, SchemaRegistryClient({"url": server.url}), cases, tally)
    written.judge_protobuf(cases, tally)


def judge_json(spark: SparkSession, seed: int, count: int, tally: Tally) -> None:
    with tempfile.TemporaryDirectory() as folder:
        json_text.judge_tables(spark, Path(folder), seed, count - count // 2, tally)
    cases = json_text.drawn(seed, count // 2)
    with RegistryServer(json_text.registered(cases)) as server:
        json_text.judge_schemas(spark, SchemaRegistryClient({"url": server.url}), cases, tally)
    written.judge_json(cases, tally)


def judge_variant(spark: SparkSession, seed: int, count: int, tally: Tally) -> None:
    with tempfile.TemporaryDirectory() as folder:
        variants.judge(spark, Path(folder), seed, count, tally)


def judge_entries(spark: SparkSession, seed: int, count: int, tally: Tally) -> None:
    del spark
    with tempfile.TemporaryDirectory() as folder:
        entries.judge(Path(folder), seed, count, tally)


JUDGES: dict[str, Callable[..., Any]] = {
    "avro": judge_avro,
    "growth": judge_growth,
    "protobuf": judge_protobuf,
    "json": judge_json,
    "variant": judge_variant,
    "entries": judge_entries,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.lab.differential.values")
    parser.add_argument("formats", nargs="*", help=f"of {', '.join(JUDGES)}; all if none is named")
    parser.add_argument("--count", type=int, default=10_000, help="how many schemas with values, over all formats")
    parser.add_argument("--seed", type=int, default=None, help="a random one if not given")
    given = parser.parse_args()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.count:,} schemas", flush=True)
    spark, is_alike = session(), True
    for name in given.formats or JUDGES:
        began, tally, count = time.monotonic(), Tally(), round(given.count * SHARES[name])
        JUDGES[name](spark, seed, count, tally)
        print(f"{name}: {count:,} schemas, {time.monotonic() - began:.0f} s")
        print("\n".join([*tally.differences, *tally.lines()]), flush=True)
        is_alike &= not tally.differences
    spark.stop()
    return 0 if is_alike else 1


if __name__ == "__main__":
    sys.exit(main())
