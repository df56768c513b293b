"""A streaming query's progress as numbers, by the names of the Kafka connector's metrics. Pure.

Spark's Kafka source reports them as `sources[i].metrics` (KafkaMicroBatchStream.metrics); a Python source cannot, so
they are computed from the offsets that Spark reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stratalog.clients.spark.options import MEMBER
from stratalog.clients.spark.source.plan import TOPIC_IDS, Offsets, offsets_from_json
from stratalog.replication.coordinator.shard.shard import HeldGroup, HeldOffset
from stratalog.replication.metrics import GAUGE, Metric
from stratalog.storage.records import TopicPartition


class OffsetsBehindLatest(NamedTuple):
    """Records that a source has not read yet, over its partitions."""

    minimum: int
    maximum: int
    average: float


@dataclass(frozen=True, slots=True)
class QueryLag:
    """Records that a query had not read when a micro-batch ended.

    query       its name, or its id
    partitions  those of each partition that it reads from stratalog
    """

    query: str
    partitions: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.partitions.values())


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One stratalog source of a query after a micro-batch.

    source    its number among the query's sources
    consumed  where it reads on, by partition
    """

    query_id: str
    run_id: str
    query_name: str
    batch_id: int
    source: int
    timestamp: str
    row_count: int
    topics: tuple[str, ...]
    behind: OffsetsBehindLatest | None
    consumed: Mapping[TopicPartition, int]

    @property
    def key(self) -> tuple[str, int]:
        return self.run_id, self.source

    @property
    def query(self) -> str:
        """The query's name, or its id."""
        return self.query_name or self.query_id


def lag_of(progress: Mapping[str, Any] | None) -> QueryLag | None:
    """How far a query is behind its topics, from `query.lastProgress`, or from the progress that a listener gets.

    None before its first micro-batch, and without a source of ours. Partitions of several sources are added up. An
    offset without a record counts, such as that of a marker or of a record that compaction removed, as in the lag of a
    consumer group.
    """
    if progress is None:
        return None
    text = getattr(progress, "json", None)  # Spark's own is a mapping, too, but not all the way down
    body: Mapping[str, Any] = json.loads(text) if isinstance(text, str) else progress
    lags: dict[TopicPartition, int] = {}
    for source in body["sources"]:
        consumed = _body(source.get("endOffset"))
        if {TOPIC_IDS, MEMBER} & consumed.keys():
            behind = _behind(_offsets(source.get("latestOffset")), offsets_from_json(consumed))
            for topic_partition, records in behind.items():
                lags[topic_partition] = lags.get(topic_partition, 0) + records
    return QueryLag(body.get("name") or str(body["id"]), lags) if lags else None


def _behind(latest: Offsets, consumed: Offsets) -> dict[TopicPartition, int]:
    """A partition that was not consumed yet counts from 0."""
    return {tp: max(0, end - consumed.get(tp, 0)) for tp, end in latest.items()}


def offsets_behind_latest(latest: Offsets, consumed: Offsets) -> OffsetsBehindLatest | None:
    """None without a partition. A partition that was not consumed yet counts from 0.

    >>> from stratalog.storage.records import TopicPartition
    >>> a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> offsets_behind_latest({a: 9, b: 4}, {a: 5, b: 4})
    OffsetsBehindLatest(minimum=0, maximum=4, average=2.0)
    """
    behind = _behind(latest, consumed).values()
    return OffsetsBehindLatest(min(behind), max(behind), sum(behind) / len(behind)) if behind else None


def progress_of(body: Mapping[str, Any]) -> list[SourceProgress]:
    """The stratalog sources in a query's progress (`StreamingQueryProgress.json`, parsed).

    Spark names no format: a source is ours when its offsets carry topic ids, or the member of a group that reads a
    part of the partitions. Before a batch has ended there are no offsets.
    """
    return [
        SourceProgress(
            body["id"],
            body["runId"],
            body.get("name") or "",
            body["batchId"],
            number,
            body["timestamp"],
            source.get("numInputRows", 0),
            tuple(sorted({tp.topic for tp in offsets_from_json(consumed)})),
            offsets_behind_latest(_offsets(source.get("latestOffset")), offsets_from_json(consumed)),
            offsets_from_json(consumed),
        )
        for number, source in enumerate(body["sources"])
        if {TOPIC_IDS, MEMBER} & (consumed := _body(source.get("endOffset"))).keys()
    ]


def as_groups(progress: Iterable[SourceProgress]) -> list[HeldGroup]:
    """Queries as groups with one member each, so that their lag is measured and shown as that of groups. Of a partition
    that several sources of a query read, the one that is furthest behind counts."""
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for each in progress:
        of_query = offsets.setdefault(each.query, {})
        for topic_partition, offset in each.consumed.items():
            of_query[topic_partition] = min(offset, of_query.get(topic_partition, offset))
    return [
        HeldGroup(query, 1, {named: HeldOffset(offset, "") for named, offset in found.items()}, lambda _topic: False)
        for query, found in sorted(offsets.items())
    ]


def _offsets(value: object) -> Offsets:
    return offsets_from_json(_body(value))


def _body(value: object) -> Mapping[str, Any]:
    """Offsets, which Spark writes as JSON within JSON or as text; of another source's kind: nothing."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) and all(isinstance(each, dict) for each in value.values()) else {}


def metrics_of(progress: Iterable[SourceProgress], replica_lag_max: int | None) -> list[Metric]:
    """Gauges by query and source; without what is not known.

    replica_lag_max  the largest number of records that a follower of the queries' topics lacks
    """
    known = [(each, each.behind) for each in progress if each.behind is not None]
    labels = [(("query", each.query), ("source", str(each.source))) for each, _ in known]

    def gauge(name: str, doc: str, values: Iterable[float]) -> Metric:
        return Metric(f"stratalog_spark_source_{name}", GAUGE, doc, dict(zip(labels, values, strict=True)))

    found = [
        gauge(
            "minOffsetsBehindLatest",
            "Records that the least backlog of a partition has.",
            (b.minimum for _, b in known),
        ),
        gauge("maxOffsetsBehindLatest", "Records that the largest backlog has.", (b.maximum for _, b in known)),
        gauge("avgOffsetsBehindLatest", "Records of a backlog on average.", (b.average for _, b in known)),
    ]
    if replica_lag_max is None:
        return found
    doc = "Largest number of records that a follower of the queries' topics lacks."
    return [*found, Metric("stratalog_spark_source_replicaLagMax", GAUGE, doc, {(): replica_lag_max})]
