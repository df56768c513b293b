"""What a broker counts, its logs and their cleaner, by Kafka's names under Strimzi's rules. Pure.

Kafka has each series of a topic without the label `topic`, too, for all topics together; so it is here. Dashboards that
sum over topics leave that one out by `topic!=""`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stratalog.replication.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    BrokerMetrics,
    Labels,
    Metric,
    RunState,
    TopicTraffic,
)
from stratalog.server.metrics.of_partitions import partition_labels
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.records import TopicPartition

FAILED = "for a reason that a client's old metadata does not explain."
TRAFFIC: dict[str, tuple[str, str, Callable[[TopicTraffic], int]]] = {
    "messagesin": ("MessagesInPerSec", "Stored records.", lambda of: of.messages_in),
    "bytesin": (
        "BytesInPerSec",
        "Stored bytes: of Arrow data, or of the files that were handed over.",
        lambda of: of.bytes_in,
    ),
    "bytesout": ("BytesOutPerSec", "Bytes of record batches sent to consumers.", lambda of: of.bytes_out),
    "totalproducerequests": ("TotalProduceRequestsPerSec", "Stored batches.", lambda of: of.produce_requests),
    "failedproducerequests": (
        "FailedProduceRequestsPerSec",
        f"Batches that were refused {FAILED}",
        lambda of: of.failed_produce_requests,
    ),
    "totalfetchrequests": (
        "TotalFetchRequestsPerSec",
        "Partitions with records in answers to Fetch; what finds nothing is not counted.",
        lambda of: of.fetch_requests,
    ),
    "failedfetchrequests": (
        "FailedFetchRequestsPerSec",
        f"Partitions that Fetch could not read, {FAILED}",
        lambda of: of.failed_fetch_requests,
    ),
}
"""Kafka's `BrokerTopicMetrics`: by the name under Strimzi's rules, the MBean's own, the meaning, the counter."""


def counter_metrics(counted: BrokerMetrics) -> list[Metric]:
    """The broker's counters."""
    interval_ms, missing_dollars = counted.commit_interval()
    gauges = (
        (
            "kafka_server_replicamanager_offlinereplicacount",
            "Led replicas that cannot be served: damaged, or on a full disk.",
            counted.offline_count(),
        ),
        (
            "stratalog_server_upkeep_livefilesmax",
            "The largest number of live files of a led replica's log.",
            counted.live_files_max(),
        ),
        (
            "stratalog_server_upkeep_appendpausemsmax",
            "The longest pause of appends to a led replica whose upkeep is overdue.",
            counted.append_pause_ms_max(),
        ),
        (
            "stratalog_server_requestsbudget_commitintervalmsmax",
            "The longest interval of a partition's commits that the budget of requests asks for.",
            interval_ms,
        ),
        (
            "stratalog_server_requestsbudget_missingdollarsperday",
            "What the commits cost above that budget; 0: it is met.",
            missing_dollars,
        ),
    )
    times = (
        ("queuetimems", "From a batch's arrival to its turn in the broker's loop.", counted.queue_time),
        ("localtimems", "From there to the commit to the leader's table.", counted.local_time),
        ("totaltimems", "From a batch's arrival to its answer.", counted.total_time),
    )
    waiting: dict[Labels, float] = {(("delayedOperation", "Produce"),): counted.waiting_count()}
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    return [
        Metric("kafka_server_replicamanager_isrshrinks_total", COUNTER, "ISRs that shrank.", {(): counted.isr_shrinks}),
        Metric("kafka_server_replicamanager_isrexpands_total", COUNTER, "ISRs that grew.", {(): counted.isr_expands}),
        Metric(purgatory, GAUGE, "Batches that wait for the high watermark.", waiting),
        *(Metric(name, GAUGE, doc, {(): value}) for name, doc, value in gauges),
        *(Metric(f"stratalog_server_append_{name}", HISTOGRAM, doc, {(): each}) for name, doc, each in times),
        *_topic_metrics(counted.topics),
    ]


def _topic_metrics(traffic_by_topic: Mapping[str, TopicTraffic]) -> Iterable[Metric]:
    topics = sorted(traffic_by_topic.copy().items() if isinstance(traffic_by_topic, dict) else traffic_by_topic.items())
    for name, (_, doc, value) in TRAFFIC.items():
        values: dict[Labels, float] = {(("topic", topic),): value(traffic) for topic, traffic in topics}
        yield Metric(
            f"kafka_server_brokertopicmetrics_{name}_total", COUNTER, doc, {(): sum(values.values()), **values}
        )


def state_metric(state: RunState) -> Metric:
    """The metric with the state of a broker's process."""
    numbers = ", ".join(f"{each.value} {each.name.lower().replace('_', ' ')}" for each in RunState)
    return Metric("kafka_server_kafkaserver_brokerstate", GAUGE, f"State of the broker: {numbers}.", {(): state.value})


class LedLog(NamedTuple):
    """A log that a broker leads. The log may grow between the reads of two fields.

    first_dirty_offset  where the cleaner's next pass begins; 0 for a log that was never compacted
    is_compacted        whether the topic's `cleanup.policy` has `compact`
    """

    start_offset: int
    end_offset: int
    files: Sequence[FileEntry]
    first_dirty_offset: int = 0
    is_compacted: bool = False

    @property
    def dirty_ratio(self) -> float:
        """The share of the bytes that the cleaner has not compacted yet, 0 to 1; as Kafka's `cleanableRatio`, but with
        the active segment."""
        total = dirty = 0
        for entry in self.files:
            total += entry.file.size_bytes
            dirty += entry.file.size_bytes if entry.end_offset > self.first_dirty_offset else 0
        return dirty / total if total else 0.0


def log_metrics(logs: Mapping[TopicPartition, LedLog]) -> list[Metric]:
    """Sizes and offsets of the logs that a broker leads, and how far their cleaner is."""
    values: dict[str, tuple[str, Callable[[LedLog], int]]] = {
        "size": ("Bytes of the log's files.", lambda log: sum(entry.file.size_bytes for entry in log.files)),
        "numlogsegments": ("Segments of the log.", lambda log: len({entry.segment for entry in log.files})),
        "logstartoffset": ("The log's first offset.", lambda log: log.start_offset),
        "logendoffset": ("The offset of the next record.", lambda log: log.end_offset),
    }
    ordered = [(partition_labels(topic_partition), log) for topic_partition, log in sorted(logs.items())]
    return [
        *(
            Metric(f"kafka_log_log_{name}", GAUGE, doc, {labels: value_of(log) for labels, log in ordered})
            for name, (doc, value_of) in values.items()
        ),
        *_cleaner_metrics([(labels, log) for labels, log in ordered if log.is_compacted]),
    ]


def _cleaner_metrics(compacted: Sequence[tuple[Labels, LedLog]]) -> list[Metric]:
    ratios = {labels: round(log.dirty_ratio, 4) for labels, log in compacted}
    positions = {labels: log.first_dirty_offset for labels, log in compacted}
    return [
        Metric(
            "stratalog_log_logcleaner_firstdirtyoffset",
            GAUGE,
            "Offset below which a compacted log is clean, as in Kafka's file cleaner-offset-checkpoint.",
            positions,
        ),
        Metric(
            "stratalog_log_logcleaner_dirty_percent",
            GAUGE,
            "Share of a compacted log's bytes above that offset, 0 to 1; min.cleanable.dirty.ratio begins a pass.",
            ratios,
        ),
        Metric(
            "kafka_log_logcleanermanager_max_dirty_percent",
            GAUGE,
            "The largest of these shares, 0 to 100.",
            {(): round(100 * max(ratios.values(), default=0.0))},
        ),
    ]
