"""The committed records of a topic as an Arrow stream, for whatever reads Arrow: DuckDB, Polars, Daft, DataFusion.

I/O: as `ClusterView`. No broker is called, and no Spark. A replica's own Delta table also shows records that are not
committed, records of aborted transactions and markers, and its offsets are the sum of two columns; here are only the
records that a `read_committed` consumer receives, with plain columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.replication.stores import client_stores
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.cluster_view import DEFAULT_TIMEOUT_MS, ClusterView
from stratalog.server.view.read_committed import READ_COMMITTED, view_of
from stratalog.server.view.records import Fetched
from stratalog.server.view.watermarks import WAIT_MS_MAX
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import InvalidConfigError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from stratalog.storage.log.rows import READ_SCHEMA, has_control_records
from stratalog.storage.objects.store_settings import StoreSettings
from stratalog.storage.records import CONTROL_ATTRIBUTE, HEADERS_TYPE, TopicPartition

COMMITTED_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
        "timestamp_type": pa.int8(),
        "leader_epoch": pa.int32(),
    }
)
"""Every column. Times are whole milliseconds, as Kafka's."""
COMMITTED_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The columns that are there unless others are named."""
READ_BYTES = 16 << 20
"""Bytes on storage of one read, about."""
_ALWAYS_READ = ("offset", "producer_id", "attributes")


class CommittedTable:
    """Committed records between fixed offsets. Made by `committed_table`.

    It has Arrow's PyCapsule interface (`__arrow_c_stream__`), so that libraries take it as a table: each query reads
    again, and finds the same records. The order is that of partitions and offsets.

    schema  of the columns
    ranges  of each partition the first offset, and the one after the last
    """

    def __init__(
        self,
        view: ClusterView,
        topic: str,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        columns: Sequence[str],
        *,
        decoded_bytes_max: int | None = None,
    ) -> None:
        """`decoded_bytes_max`: about how much memory the records of one read may take."""
        self._decoded_bytes_max = decoded_bytes_max
        self.schema = pa.schema([COMMITTED_SCHEMA.field(name) for name in columns])
        self.ranges = dict(ranges)
        self._view = view
        self._topic = topic
        self._topic_id = view.image.topic_ids.get(topic)

    def reader(self) -> pa.RecordBatchReader:
        """The records as a stream, to be read once."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def read_all(self) -> pa.Table:
        """The records in memory."""
        return self.reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        ranges = ", ".join(f"{place.partition}: [{start}, {end})" for place, (start, end) in self.ranges.items())
        return f"CommittedTable({self._topic}, {self.schema.names}, {ranges})"

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Raises OffsetOutOfRangeError when retention has removed some of the records, UnknownTopicOrPartitionError
        when the topic was deleted, LeaderNotAvailableError, CorruptMessageError."""
        wanted = [name for name in READ_SCHEMA.names if name in self.schema.names or name in _ALWAYS_READ]
        for place, (start, end) in self.ranges.items():
            offset = start
            while offset < end:
                fetched = self._fetch(place, offset, end, wanted)
                yield from self._shown(fetched.rows, place).to_batches()
                offset = fetched.next_offset

    def _fetch(self, place: TopicPartition, offset: int, end: int, columns: Sequence[str]) -> Fetched:
        """The next records. A new leader may know for a while only less than what was committed: it is waited for."""
        view, topic = self._view, self._topic
        deadline_ms = view.clock.monotonic_ms() + DEFAULT_TIMEOUT_MS
        while True:
            if view.image.topic_ids.get(topic) != self._topic_id:
                raise UnknownTopicOrPartitionError(f"topic '{topic}' of id {self._topic_id} was deleted since")
            fetched = view.records.fetch(
                place, offset, READ_BYTES, end, columns=columns, decoded_bytes_max=self._decoded_bytes_max
            )
            if fetched.next_offset > offset:
                return fetched
            if view.clock.monotonic_ms() >= deadline_ms:
                raise LeaderNotAvailableError(
                    f"{place}: no replica has offset {offset} of [{offset}, {end}) after {DEFAULT_TIMEOUT_MS} ms"
                )
            view.clock.sleep_ms(WAIT_MS_MAX)
            view.refresh()

    def _shown(self, rows: pa.Table, place: TopicPartition) -> pa.Table:
        if has_control_records(rows):
            is_control = pc.bit_wise_and(rows["attributes"], pa.scalar(CONTROL_ATTRIBUTE, pa.int16()))
            rows = rows.filter(pc.equal(is_control, 0))
        made: Mapping[str, Callable[[], pa.Array]] = {
            "topic": lambda: pa.repeat(pa.scalar(place.topic), rows.num_rows),
            "partition": lambda: pa.repeat(pa.scalar(place.partition, pa.int32()), rows.num_rows),
        }
        columns = [made[f.name]() if f.name in made else rows[f.name].cast(f.type) for f in self.schema]
        return pa.table(columns, schema=self.schema)


def committed_table(
    cluster: Cluster,
    topic: str,
    *,
    columns: Sequence[str] = COMMITTED_COLUMNS,
    partitions: Iterable[int] | None = None,
    isolation_level: str = READ_COMMITTED,
    storage: Mapping[str, str] | None = None,
) -> CommittedTable:
    """The records of a topic that are committed now, up to each partition's last stable offset.

    cluster          a running `Cluster`, or the URL or path of its metadata root
    columns          of `COMMITTED_SCHEMA`, in this order; only they are read
    partitions       numbers; None: all
    isolation_level  `read_uncommitted` ends at the high watermarks, and has records of open and aborted transactions
    storage          settings of the object store, as `{"aws.region": "eu-west-1"}`; they take precedence over the
                     environment's

    Records that are committed later are not in it: call it again. Raises InvalidConfigError for a column that there is
    not, UnknownTopicOrPartitionError, LeaderNotAvailableError.
    """
    stores = client_stores(RandomIds(), StoreSettings.of(storage or {}))
    return table_of(view_of(isolation_level)(cluster, stores=stores), topic, columns, partitions)


def table_of(
    view: ClusterView, topic: str, columns: Sequence[str] = COMMITTED_COLUMNS, partitions: Iterable[int] | None = None
) -> CommittedTable:
    """As `committed_table`, through a view that the table keeps using."""
    unknown = [name for name in columns if name not in COMMITTED_SCHEMA.names]
    if unknown or not columns:
        raise InvalidConfigError(f"columns {list(columns)}: expected some of {COMMITTED_SCHEMA.names}")
    places = _chosen(view.partitions(topic), topic, partitions)
    starts, ends = view.offsets.beginning_offsets(places), view.offsets.end_offsets(places)
    ranges = {place: (starts[place], max(starts[place], ends[place])) for place in places}
    return CommittedTable(view, topic, ranges, columns)


def _chosen(known: Sequence[TopicPartition], topic: str, partitions: Iterable[int] | None) -> Sequence[TopicPartition]:
    if partitions is None:
        return known
    chosen = [TopicPartition(topic, number) for number in sorted(set(partitions))]
    missing = [place for place in chosen if place not in known]
    if missing:
        raise UnknownTopicOrPartitionError(f"{missing[0]} does not exist: the topic has {len(known)} partitions")
    return chosen
