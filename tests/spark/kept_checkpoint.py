"""A cluster and the checkpoints of two queries as a release left them. I/O: Spark, a cluster, an archive.

    python -m tests.spark.kept_checkpoint

makes `kept_checkpoint.tar.gz` with the code of the tree that it runs in, below a folder of the same name everywhere.
Both queries copy a topic; one does so in transactions. Of each, the newest batch is stored and missing in Spark's
commit log, as if the driver had died in between.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from pyspark.sql import SparkSession

from stratalog import Admin, Cluster, NewTopic, Producer, stratalog_session

ARCHIVE = Path(__file__).with_suffix(".tar.gz")
MADE_IN = Path("/srv/stratalog-kept")
SOURCE, PLAIN, IN_TRANSACTIONS = "orders", "plain-copies", "copies"
PARTITIONS, BATCHES = 2, 3
FOR_EVER = {"retention.ms": "-1"}
CONFIG = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.retention.minutes": 2**31 - 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}


def cluster_in(folder: Path) -> Cluster:
    return Cluster.start(folder / "cluster", brokers=1, fetcher="thread", config=CONFIG)


def send(cluster: Cluster, first: int, last: int) -> None:
    """Numbers as values, each to the partition of its remainder."""
    with Producer(cluster) as producer:
        for number in range(first, last):
            producer.send(SOURCE, str(number), key=str(number), partition=number % PARTITIONS)


def copy_now(spark: SparkSession, root: str, folder: Path, target: str) -> None:
    """Run the query that copies into `target` until it has read everything, from its checkpoint in the folder."""
    given = {"stratalog.root": root, "subscribe": SOURCE, "startingOffsets": "earliest"}
    of_sink = {"stratalog.root": root, "topic": target, "checkpointLocation": str(folder / target)}
    if target == IN_TRANSACTIONS:
        given["kafka.group.id"] = of_sink["kafka.transactional.id"] = target
    stream = spark.readStream.format("stratalog").options(**given).load().select("key", "value")
    query = stream.writeStream.format("stratalog").options(**of_sink).trigger(availableNow=True).start()
    query.awaitTermination()


def make(folder: Path) -> None:
    spark = stratalog_session("kept")
    with cluster_in(folder) as cluster:
        for topic in (SOURCE, PLAIN, IN_TRANSACTIONS):
            Admin(cluster).create_topics([NewTopic(topic, PARTITIONS, 1, FOR_EVER)])
        for batch in range(BATCHES):
            send(cluster, batch * 10, batch * 10 + 10)
            for target in (PLAIN, IN_TRANSACTIONS):
                copy_now(spark, cluster.root, folder, target)
    spark.stop()
    for target in (PLAIN, IN_TRANSACTIONS):
        for path in (folder / target / "commits").glob(f"*{BATCHES - 1}*"):
            path.unlink()


if __name__ == "__main__":
    MADE_IN.mkdir(parents=True)
    try:
        make(MADE_IN)
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            archive.add(MADE_IN, ".", filter=lambda info: None if info.name.endswith(".lock") else info)
    finally:
        shutil.rmtree(MADE_IN)
