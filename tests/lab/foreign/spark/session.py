"""A Spark session with Spark's own Kafka connector, as Maven has it.

I/O: Maven's jars and Spark's JVM.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache

import pyspark
from pyspark.sql import SparkSession

from tests.lab.bench.peer.kafka import SPARK_LIBS, fetch_jars, spark_jars

ARTIFACTS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients")


@cache
def session() -> SparkSession:
    """The one of this process, with two cores."""
    fetch_jars()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = tempfile.gettempdir()
    settings = {
        "spark.jars": spark_jars(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    builder = SparkSession.builder.master("local[2]").appName("stratalog foreign clients")
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def close_session() -> None:
    """Stop it, if there is one."""
    if session.cache_info().currsize:
        session().stop()
        session.cache_clear()


def versions() -> str:
    """Of Spark, the connector, and what it has for logins and of Kafka."""
    fetch_jars()
    return ", ".join((pyspark.__version__, *(f"{artifact} {version_of(artifact)}" for artifact in ARTIFACTS)))


def version_of(artifact: str) -> str:
    """From the name of its jar."""
    return next(SPARK_LIBS.glob(f"{artifact}-*.jar")).stem.removeprefix(f"{artifact}-")
