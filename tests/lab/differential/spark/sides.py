"""The two sides of a case. I/O: Spark, a Kafka of three brokers, a stratalog cluster.

Topics, keys, values and partitions are the same on both sides, so that offsets are, too.
"""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from stratalog import Admin, Cluster
from stratalog.storage.records import TopicPartition
from tests.lab.bench.peer.kafka import Kafka

PARTITIONS = 3
WAIT_S = 180


class Side(ABC):
    """One format and its cluster.

    where  the options that name the cluster
    """

    name: str
    format: str
    where: Mapping[str, str]

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    @abstractmethod
    def create_topic(self, topic: str) -> None:
        """A topic of `PARTITIONS` partitions."""

    @abstractmethod
    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of partitions before offsets."""

    def new_folder(self) -> str:
        return tempfile.mkdtemp(dir=self.folder)

    def write(self, frame: DataFrame, **options: object) -> None:
        frame.write.format(self.format).mode("append").options(**{**self.where, **options}).save()

    def read(self, **options: object) -> DataFrame:
        return self.spark.read.format(self.format).options(**{**self.where, **options}).load()

    def stream(self, **options: object) -> DataFrame:
        return self.spark.readStream.format(self.format).options(**{**self.where, **options}).load()

    def run(self, stream: DataFrame, target: str, checkpoint: str) -> list[int]:
        """A query into a folder of Parquet files until it has read what there is; the rows of each batch with any."""
        writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start(target)
        if not query.awaitTermination(WAIT_S):
            query.stop()
            raise TimeoutError(f"{self.name}: the query did not end within {WAIT_S} s")
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


class KafkaSide(Side):
    """Spark's own connector. Topics are made by being written to."""

    name, format = "kafka", "kafka"

    def __init__(self, spark: SparkSession, folder: Path, kafka: Kafka) -> None:
        super().__init__(spark, folder)
        self._kafka = kafka
        self.where = {"kafka.bootstrap.servers": kafka.bootstrap}

    def create_topic(self, topic: str) -> None:
        return

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        wanted = [{"topic": topic, "partition": number, "offset": offset} for number, offset in before.items()]
        file = Path(self.new_folder()) / "offsets.json"
        file.write_text(json.dumps({"partitions": wanted, "version": 1}), encoding="utf-8")
        main = "org.apache.kafka.tools.DeleteRecordsCommand"
        self._kafka.tool(main, "--bootstrap-server", self._kafka.bootstrap, "--offset-json-file", file)


class OurSide(Side):
    """The format `stratalog`."""

    name, format = "stratalog", "stratalog"

    def __init__(self, spark: SparkSession, folder: Path, cluster: Cluster) -> None:
        super().__init__(spark, folder)
        self._admin = Admin(cluster)
        self.where = {"stratalog.root": cluster.root}

    def create_topic(self, topic: str) -> None:
        self._admin.create_topic(topic, PARTITIONS, 3)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        self._admin.delete_records({TopicPartition(topic, number): offset for number, offset in before.items()})
