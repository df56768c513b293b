"""The demo's log as readers see it that know nothing of brokers: deltalake, and Spark where Java is there.

I/O: the tables of a topic in a bucket; a Spark session of this process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable

from stratalog import ClusterView, stratalog_session


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


def tables_of(view: ClusterView, topic: str) -> list[str]:
    """The URLs of a topic's tables, by partition; all replicas of one have the same."""
    view.refresh()
    image = view.image
    found = []
    for topic_partition in sorted(image.partitions_of(topic)):
        root = view.replica_root(topic_partition, image.partition(topic_partition).replicas[0])
        found.append(f"{root}/{topic}-{topic_partition.partition}")
    return found


def records_by_deltalake(urls: Sequence[str]) -> dict[Place, bytes]:
    """The value at each offset."""
    found: dict[Place, bytes] = {}
    for partition, url in enumerate(urls):
        rows = DeltaTable(url).to_pyarrow_table(columns=["base_offset", "offset_delta", "value"])
        for base, delta, value in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            found[Place(partition, base + delta)] = value
    return found


def rows_by_deltalake(urls: Sequence[str]) -> int:
    """The rows of all tables, also of an offset that is there twice."""
    return sum(DeltaTable(url).to_pyarrow_dataset().count_rows() for url in urls)


def has_java() -> bool:
    """Whether Spark can run here."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java") is not None


def rows_by_spark(root: str, topic: str) -> int:
    """The records that the Spark source reads from the bucket."""
    with tempfile.TemporaryDirectory(prefix="demo-cloud-") as folder:
        spark = stratalog_session("stratalog demo in a bucket", log_dir=Path(folder))
        try:
            source = spark.read.format("stratalog").option("stratalog.root", root).option("subscribe", topic)
            return source.option("startingOffsets", "earliest").load().count()
        finally:
            spark.stop()


def moved(acknowledged: Mapping[Place, bytes], found: Mapping[Place, bytes]) -> int:
    """How many acknowledged records are not at their offsets.

    >>> moved({Place(0, 0): b"a", Place(0, 1): b"b"}, {Place(0, 0): b"a", Place(0, 1): b"c"})
    1
    """
    return sum(found.get(place) != value for place, value in acknowledged.items())
