"""A process with a Spark session and a query that copies a topic in transactions, until standard input ends.

    python -m tests.lab.real.processes.copying_query <metadata root> <from> <to> <id> <folder> [<option>=<value> ...]

`id` names the group and the transactions. A query that fails is started again from its checkpoint, as a supervisor
would do it. The environment variable STRATALOG_TESTS_MASTER names a Spark cluster; without it the session is local.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from pyspark.errors import StreamingQueryException

from stratalog import stratalog_session
from tests.lab.real.processes.query_process import STARTED
from tests.lab.real.processes.standalone_spark import SUBMITTED_SETTINGS

MASTER = "STRATALOG_TESTS_MASTER"


def main(root: str, source: str, target: str, name: str, folder: str, *settings: str) -> None:
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    master = os.environ.get(MASTER)
    spark = stratalog_session(name, extra=SUBMITTED_SETTINGS | {"spark.master": master} if master else None)
    options = {
        "stratalog.root": root,
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "200",
        "kafka.group.id": name,
        **dict(setting.split("=", 1) for setting in settings),
    }
    while not is_over.is_set():
        stream = spark.readStream.format("stratalog").options(**options).load().select("key", "value")
        writer = stream.writeStream.format("stratalog").option("stratalog.root", root).option("topic", target)
        writer = writer.option("kafka.transactional.id", name)
        query = writer.option("checkpointLocation", str(Path(folder) / "checkpoint")).start()
        print(STARTED, flush=True)
        try:
            while not is_over.is_set() and not query.awaitTermination(1):
                pass
        except StreamingQueryException as reason:
            print(f"failed: {str(reason)[-600:]}", flush=True)
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
