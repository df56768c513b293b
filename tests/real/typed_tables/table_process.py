"""One run of a typed table as a process: `python -m tests.real.typed_tables.table_process ROOT TABLE SETTINGS`.

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


def main(arguments: list[str]) -> int:
    root, place, settings = arguments
    spark = stratalog_session("typed-tables", extra={"spark.master": "local[2]"})
    note(kind="session")
    registry = SchemaFolder(root)
    table = TypedTable(spark, root, TOPIC, place, json.loads(settings), registry)
    query = table.start(available_now=True)
    query.awaitTermination()
    batches = [{"rows": each.numInputRows, "ms": each.durationMs["triggerExecution"]} for each in query.recentProgress]
    state = table.describe()
    note(kind="done", rows=state.row_count, dead_letters=state.dead_letter_count, batches=batches)
    registry.close()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
