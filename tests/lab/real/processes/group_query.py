"""A process with a Spark session and one streaming query that is a member of a group, until standard input ends.

The line `STOP_SESSION` on standard input stops the session, and nothing else.

    python -m tests.lab.real.processes.group_query <metadata root> <topic> <group> <folder> [<option>=<value> ...]

Each micro-batch becomes `<folder>/batch-<number>`: the partitions and offsets that it read, visible before Spark's
commit log has the batch. A batch that is run again replaces what its first run left.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame

from stratalog import stratalog_session

STARTED = "started"
STOP_SESSION = "stop session"


def main(root: str, topic: str, group: str, folder: str, *settings: str) -> None:
    def store(frame: DataFrame, batch: int) -> None:
        frame.select("partition", "offset").write.mode("overwrite").parquet(str(Path(folder) / f"batch-{batch}"))

    spark = stratalog_session(f"member of {group}")
    options = {
        "stratalog.root": root,
        "subscribe": topic,
        "kafka.group.id": group,
        "stratalog.group.mode": "share",
        "stratalog.auto.offset.reset": "earliest",
        **dict(setting.split("=", 1) for setting in settings),
    }
    stream = spark.readStream.format("stratalog").options(**options).load()
    writer = stream.writeStream.foreachBatch(store).option("checkpointLocation", str(Path(folder) / "checkpoint"))
    query = writer.start()
    print(STARTED, flush=True)
    if sys.stdin.readline().strip() == STOP_SESSION:
        spark.stop()
        sys.stdin.read()
    else:
        query.stop()
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
