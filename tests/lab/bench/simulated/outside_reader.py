"""A reader of Delta tables in a bucket that knows nothing of stratalog: deltalake finds new files, obstore reads them.

    python -m tests.lab.bench.simulated.outside_reader COUNT URL ...

I/O: the tables at these URLs, each followed by a thread of its own; the environment has endpoint and credentials.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from threading import Event, Thread

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from obstore.store import S3Store

from tests.lab.bench.benches.time_to_table import READY, FollowedTable, number_of, print_seen


def main(arguments: Sequence[str]) -> None:
    """Print `<number> <seconds of the monotonic clock>` for each record, once all are there."""
    count, urls = int(arguments[0]), arguments[1:]
    seen: dict[int, float] = {}
    ends = Event()
    stores = [S3Store.from_url(url, client_options={"allow_http": True}) for url in urls]
    tables = [FollowedTable(DeltaTable(url), partial(_opened, store)) for url, store in zip(urls, stores, strict=True)]

    def follow(table: FollowedTable) -> None:
        while not ends.is_set():
            values = table.new_values()
            now_s = time.monotonic()
            seen.update((number_of(value), now_s) for value in values)
            if len(seen) == count:
                ends.set()

    print(READY, flush=True)
    threads = [Thread(target=follow, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_seen(seen)


def _opened(store: S3Store, path: str) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(obstore.get(store, path).bytes().to_bytes()))


if __name__ == "__main__":
    main(sys.argv[1:])
