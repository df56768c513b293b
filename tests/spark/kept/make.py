"""`python -m tests.spark.kept.make RELEASE`: keep the checkpoints of this release's queries in a file of that name.

The file has a cluster of one broker, as its process left it, and the checkpoints of `queries.QUERIES`. A release that
changes what a checkpoint or the sink's notes hold gets a file of its own; those of earlier releases stay.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from stratalog import Admin, Cluster, NewTopic, Producer, stratalog_session
from tests.spark.kept.queries import (
    BEGUN,
    CONFIG,
    COUNT,
    COUNT_LATER,
    LAST_BATCH,
    PARTITIONS,
    POISON,
    QUERIES,
    SOURCE,
    KeptQuery,
)

HERE = Path(__file__).parent
KEPT = ("cluster", "checkpoints")


def main(release: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        with tarfile.open(HERE / f"{release}.tar.xz", "w:xz") as file:
            for name in KEPT:
                file.add(Path(folder) / name, name, filter=_anonymous)


def make(folder: Path) -> None:
    """Run the queries and end them, each in its last batch; then write what they have not read."""
    spark = stratalog_session("kept checkpoints", log_dir=folder / "spark")
    with Cluster.start(folder / "cluster", brokers=1, fetcher="thread", config=CONFIG) as cluster:
        forever = {"retention.ms": "-1"}
        names = (SOURCE, *(query.name for query in QUERIES))
        Admin(cluster).create_topics([NewTopic(name, PARTITIONS, 1, forever) for name in names])
        send(cluster, range(COUNT))
        for query in QUERIES:
            run_to_the_last_batch(query, spark, cluster.root, folder)
        send(cluster, range(COUNT, COUNT + COUNT_LATER))
    spark.stop()


def send(cluster: Cluster, numbers: range) -> None:
    with Producer(cluster) as producer:
        for number in numbers:
            producer.send(SOURCE, str(number), key=str(number), partition=number % PARTITIONS)


def run_to_the_last_batch(query: KeptQuery, spark: SparkSession, root: str, folder: Path) -> None:
    """Leave the checkpoint with a batch in its offset log that its commit log lacks."""
    logs = query.checkpoint(folder)
    if query.state == BEGUN:
        value = f"IF(string(value) = '{POISON}', raise_error('the query is to end here'), value)"
        with suppress(StreamingQueryException):
            query.start(spark, root, folder, value).awaitTermination()
    else:
        query.start(spark, root, folder).awaitTermination()
        for path in (logs / "commits").glob(f"*{LAST_BATCH}*"):  # its checksum, too
            path.unlink()
    assert not (logs / "commits" / str(LAST_BATCH)).exists(), f"{query.name} has committed its last batch"
    assert (logs / "offsets" / str(LAST_BATCH)).exists(), f"{query.name} has not begun its last batch"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The times stay: what is kept is as old as it looks."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(*sys.argv[1:])
