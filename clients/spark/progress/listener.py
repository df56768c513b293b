"""`ProgressListener`: how far streaming queries are behind, to Prometheus and to a Delta table.

I/O: a thread that folds replicas' tables and appends to the Delta table, and, if wanted, a listening socket. Spark's
callbacks only put numbers into memory: a slow listener slows every query.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Protocol, Self, runtime_checkable

import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from stratalog.clients.spark.progress.offsets_behind import SourceProgress, as_groups, metrics_of, progress_of
from stratalog.clients.spark.progress.replica_lag import ReplicaLag
from stratalog.replication.metrics import Metric
from stratalog.server.bootstrap import Cluster, root_of
from stratalog.server.lag.group_lag import MeasuredGroup, lag_metrics
from stratalog.server.lag.rounds import LagMeasurement
from stratalog.server.metrics.http_server import LOOPBACK, StatusServer, metrics_routes
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger

INTERVAL_MS = 10_000
ROWS_MAX = 100_000
"""Number of rows that are kept while the table cannot be written; the oldest are dropped then."""
TABLE_SCHEMA = pa.schema(
    [
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("queryId", pa.string()),
        ("runId", pa.string()),
        ("queryName", pa.string()),
        ("batchId", pa.int64()),
        ("source", pa.int32()),
        ("topics", pa.list_(pa.string())),
        ("numInputRows", pa.int64()),
        ("minOffsetsBehindLatest", pa.int64()),
        ("maxOffsetsBehindLatest", pa.int64()),
        ("avgOffsetsBehindLatest", pa.float64()),
        ("replicaLagMax", pa.int64()),
    ]
)
"""One row for each source of each micro-batch."""

_LOG = line_logger("stratalog.progress")


@runtime_checkable
class ServesMetrics(Protocol):
    """A cluster whose brokers run in this process: it has a metrics port, if `stratalog.metrics.port` is set."""

    def add_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Serve these, too."""


class ProgressListener(StreamingQueryListener):
    """Give it to `spark.streams.addListener`; `close` it after the queries, and it writes the last rows.

    cluster      a running `Cluster`, which serves the numbers at its metrics port, or the metadata root of any
    port         of a metrics server of the listener's own; None: there is none, 0: a free one, see `port`
    host         where that listens: "0.0.0.0" for other machines, too, without a login
    table        path or URL of a Delta table that gets a row for each source of each micro-batch; "": none
    interval_ms  between looks at the replicas' lag, and between commits to the table
    KafkaStorageError when the port is taken; LogDirNotFoundError without a cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        port: int | None = None,
        host: str = LOOPBACK,
        table: str = "",
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        view = ClusterView(root_of(cluster))
        self._lag = ReplicaLag(view)
        self._measurement = LagMeasurement(view, view.clock)
        self._measured: list[MeasuredGroup] = []
        self._table = table
        self._interval_s = interval_ms / 1000
        self._clock = view.clock
        self._lock = threading.Lock()
        self._newest: dict[tuple[str, int], SourceProgress] = {}
        self._rows: list[SourceProgress] = []
        self._replica_lag_max: int | None = None
        if isinstance(cluster, ServesMetrics):
            cluster.add_metrics(self.metrics)
        self._server = None if port is None else StatusServer(port, metrics_routes(self.metrics), host)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="query-progress", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int | None:
        """The port of the listener's own metrics server."""
        return None if self._server is None else self._server.port

    def metrics(self) -> list[Metric]:
        """The numbers of the running queries as of their last micro-batch, and, as of groups of their names, how far
        they are behind what was written since."""
        with self._lock:
            of_batches = metrics_of(list(self._newest.values()), self._replica_lag_max)
        return [*of_batches, *lag_metrics(self._measured, self._clock.wall_ms())]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        found = progress_of(json.loads(event.progress.json))
        with self._lock:
            self._newest.update({each.key: each for each in found})
            if self._table:
                self._rows = [*self._rows, *found][-ROWS_MAX:]

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing: what is known is still so."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._lock:
            self._newest = {key: each for key, each in self._newest.items() if key[0] != str(event.runId)}
            running = {each.query for each in self._newest.values()}
            self._measured = [group for group in self._measured if group.group_id in running]

    def close(self) -> None:
        """Write what is left to the table, and end thread and server."""
        self._over.set()
        self._thread.join()
        with self._lock:
            self._newest = {}
            self._measured = []
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._over.wait(self._interval_s)
            self._measure_replicas()
            self._measure_queries()
            self._append_rows()

    def _measure_replicas(self) -> None:
        with self._lock:
            topics = {topic for each in (*self._newest.values(), *self._rows) for topic in each.topics}
        try:
            lag = self._lag.records_max(sorted(topics))
        except StratalogError as reason:
            _LOG.warning("the replicas' lag is not known: %s", reason)
            lag = None
        with self._lock:
            self._replica_lag_max = lag

    def _measure_queries(self) -> None:
        with self._lock:
            queries = as_groups(self._newest.values())
        try:
            measured = self._measurement.measure(queries)
        except StratalogError as reason:
            _LOG.warning("the queries' lag is not known: %s", reason)
            return
        with self._lock:
            running = {each.query for each in self._newest.values()}
            self._measured = [group for group in measured if group.group_id in running]

    def _append_rows(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            write_deltalake(self._table, _as_table(rows, self._replica_lag_max), mode="append")
        except (DeltaError, OSError) as reason:
            _LOG.warning("%d rows of progress wait, %s cannot be written: %s", len(rows), self._table, reason)
            with self._lock:
                self._rows = [*rows, *self._rows][-ROWS_MAX:]


def _as_table(rows: Iterable[SourceProgress], replica_lag_max: int | None) -> pa.Table:
    return pa.Table.from_pylist([_row(each, replica_lag_max) for each in rows], TABLE_SCHEMA)


def _row(each: SourceProgress, replica_lag_max: int | None) -> dict[str, Any]:
    behind = each.behind
    return {
        "timestamp": datetime.fromisoformat(each.timestamp),
        "queryId": each.query_id,
        "runId": each.run_id,
        "queryName": each.query_name or None,
        "batchId": each.batch_id,
        "source": each.source,
        "topics": each.topics,
        "numInputRows": each.row_count,
        "minOffsetsBehindLatest": behind and behind.minimum,
        "maxOffsetsBehindLatest": behind and behind.maximum,
        "avgOffsetsBehindLatest": behind and behind.average,
        "replicaLagMax": replica_lag_max,
    }
