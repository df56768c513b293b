"""One run of a typed table as a process: `python -m tests.lab.real.typed_tables.table_process ROOT TABLE SETTINGS`.

Prints a line of JSON when its session is up, after each batch, and at the end. I/O: Spark, the cluster's storage.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from stratalog import SchemaFolder, TypedTable, stratalog_session

TOPIC = "orders"


def note(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def records_of(progress: dict[str, Any], topic: str) -> int:
    """The records of a batch by its offsets: `numInputRows` counts them each time that they are read."""
    [source] = progress["sources"]
    ends, starts = source["endOffset"][topic], (source["startOffset"] or {}).get(topic, {})
    return sum(end - starts.get(partition, 0) for partition, end in ends.items())


def main(arguments: list[str]) -> int:
    root, place, settings = arguments
    spark = stratalog_session("typed-tables", extra={"spark.master": "local[2]"})
    note(kind="session")
    registry = SchemaFolder(root)
    table = TypedTable(spark, root, TOPIC, place, json.loads(settings), registry)
    query = table.start(available_now=True)
    query.awaitTermination()
    progress = [json.loads(each.json) for each in query.recentProgress]
    batches = [{"rows": records_of(each, TOPIC), "ms": each["durationMs"]["triggerExecution"]} for each in progress]
    state = table.describe()
    note(kind="done", rows=state.row_count, dead_letters=state.dead_letter_count, batches=batches)
    registry.close()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
