"""What a broker counts, and what its image of the cluster says, by the names of Kafka's metrics. Pure.

Counters are plain numbers that the broker's loop alone changes; who reads them sees each as it is at that moment, so
nobody waits for anybody. Gauges are computed when they are asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Upper bounds of a histogram's buckets, in milliseconds."""

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How long something took, in milliseconds: counts by `BOUNDS_MS`, the last one above all of them."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0

    def observe(self, duration_ms: int, count: int = 1) -> None:
        """`count` things took so long each. A time below 0, as of what began within the same turn, counts as 0."""
        duration_ms = max(duration_ms, 0)
        self.counts[bisect_left(BOUNDS_MS, duration_ms)] += count
        self.sum_ms += duration_ms * count

    def percentile_ms(self, percent: float) -> float:
        """The bound of the bucket that holds this percentile; infinite above the last bound, 0 when nothing was seen.

        >>> times = Histogram()
        >>> for took in (1, 3, 3, 40): times.observe(took)
        >>> times.percentile_ms(50), times.percentile_ms(99)
        (5, 50)
        """
        wanted, seen = sum(self.counts) * percent / 100, 0
        for bound, count in zip((*BOUNDS_MS, float("inf")), self.counts, strict=True):
            seen += count
            if seen and seen >= wanted:
                return bound
        return 0


@dataclass(slots=True)
class TopicTraffic:
    """What came into one topic through this broker. Readers go to storage, so nothing is known of what went out."""

    messages_in: int = 0
    bytes_in: int = 0
    produce_requests: int = 0

    def appended(self, messages: int, size_bytes: int, requests: int) -> None:
        """A group was stored."""
        self.messages_in += messages
        self.bytes_in += size_bytes
        self.produce_requests += requests


@dataclass(slots=True)
class BrokerMetrics:
    """A broker's counters.

    queue_time  from a request's arrival until the broker's loop takes it
    local_time  until it is committed to the leader's table, from when it was taken
    total_time  from arrival to the answer
    waiting_count  how many batches wait for the high watermark now
    offline_count  how many led replicas cannot be served now: damaged, or without space
    live_files_max  the most live files that a led replica's log has now
    append_pause_ms_max  how long upkeep lets an append wait now, of the led replica that waits longest
    """

    isr_shrinks: int = 0
    isr_expands: int = 0
    queue_time: Histogram = field(default_factory=Histogram)
    local_time: Histogram = field(default_factory=Histogram)
    total_time: Histogram = field(default_factory=Histogram)
    topics: dict[str, TopicTraffic] = field(default_factory=dict)
    waiting_count: Callable[[], int] = lambda: 0
    offline_count: Callable[[], int] = lambda: 0
    live_files_max: Callable[[], int] = lambda: 0
    append_pause_ms_max: Callable[[], int] = lambda: 0

    def topic(self, name: str) -> TopicTraffic:
        """The counters of one topic, made when they are first asked for."""
        return self.topics.setdefault(name, TopicTraffic())

    def isr_changed(self, before: Sequence[int], after: Sequence[int]) -> None:
        """The ISR of a led partition changed within its leader epoch."""
        self.isr_shrinks += bool(set(before) - set(after))
        self.isr_expands += bool(set(after) - set(before))


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with its values by labels. A histogram's value is the histogram itself."""

    name: str
    kind: str
    doc: str
    values: Mapping[Labels, float | Histogram]


def image_metrics(image: ClusterImage, broker_id: int, replica_lag_max: int | None = None) -> list[Metric]:
    """What the metadata says, as broker `broker_id` tells it: of what it leads, and as controller of all.

    replica_lag_max  the most records that a follower of this broker's leaders lacks; None where that is not known
    """
    states = list(image.partitions.values())
    hosted = [state for state in states if broker_id in state.replicas]
    led = [state for state in hosted if state.leader == broker_id]
    is_controller = image.controller_id == broker_id
    gauges = [
        ("server_ReplicaManager_LeaderCount", "Partitions that it leads.", len(led)),
        ("server_ReplicaManager_PartitionCount", "Replicas that it has.", len(hosted)),
        (
            "server_ReplicaManager_UnderReplicatedPartitions",
            "Led partitions whose ISR is smaller than their set of replicas.",
            sum(is_under_replicated(state) for state in led),
        ),
        (
            "server_ReplicaManager_UnderMinIsrPartitionCount",
            "Led partitions whose ISR is smaller than min.insync.replicas.",
            sum(len(state.isr) < _min_isr(image, state) for state in led),
        ),
        (
            "server_ReplicaManager_AtMinIsrPartitionCount",
            "Led partitions whose ISR is just min.insync.replicas.",
            sum(len(state.isr) == _min_isr(image, state) for state in led),
        ),
        ("controller_KafkaController_ActiveControllerCount", "1 on the controller.", int(is_controller)),
        (
            "controller_KafkaController_OfflinePartitionsCount",
            "Partitions without a leader; told by the controller.",
            sum(state.leader == NO_LEADER for state in states) if is_controller else 0,
        ),
        (
            "controller_KafkaController_GlobalTopicCount",
            "Topics; told by the controller.",
            len(image.topic_ids) if is_controller else 0,
        ),
        (
            "controller_KafkaController_GlobalPartitionCount",
            "Partitions; told by the controller.",
            len(states) if is_controller else 0,
        ),
        (
            "controller_KafkaController_ActiveBrokerCount",
            "Brokers that are not fenced; told by the controller.",
            len(image.live_brokers()) if is_controller else 0,
        ),
        (
            "controller_KafkaController_FencedBrokerCount",
            "Brokers that are down; told by the controller.",
            len(image.brokers) - len(image.live_brokers()) if is_controller else 0,
        ),
    ]
    if replica_lag_max is not None:
        doc = "Most records that a follower of its leaders lacks."
        gauges.append(("server_ReplicaFetcherManager_MaxLag", doc, replica_lag_max))
    return [Metric(f"kafka_{name}", GAUGE, doc, {(): value}) for name, doc, value in gauges]


def counter_metrics(counted: BrokerMetrics) -> list[Metric]:
    """What the broker counted."""
    topics = sorted(counted.topics.items())
    by_topic = {
        "MessagesIn": ("Records that were stored.", {name: traffic.messages_in for name, traffic in topics}),
        "BytesIn": (
            "Bytes that were stored: of Arrow data, of files as they are when they were handed over.",
            {name: traffic.bytes_in for name, traffic in topics},
        ),
        "TotalProduceRequests": ("Batches stored.", {name: traffic.produce_requests for name, traffic in topics}),
    }
    times = {
        "RequestQueueTimeMs": ("From a batch's arrival until the broker takes it.", counted.queue_time),
        "LocalTimeMs": ("Until it is in the leader's table, from then.", counted.local_time),
        "TotalTimeMs": ("From a batch's arrival to its answer.", counted.total_time),
    }
    produce = (("request", "Produce"),)
    return [
        Metric("kafka_server_ReplicaManager_IsrShrinks_total", COUNTER, "ISRs that shrank.", {(): counted.isr_shrinks}),
        Metric("kafka_server_ReplicaManager_IsrExpands_total", COUNTER, "ISRs that grew.", {(): counted.isr_expands}),
        Metric(
            "kafka_server_DelayedOperationPurgatory_PurgatorySize",
            GAUGE,
            "Batches that wait for the high watermark.",
            {(("delayedOperation", "Produce"),): counted.waiting_count()},
        ),
        Metric(
            "kafka_server_ReplicaManager_OfflineReplicaCount",
            GAUGE,
            "Led replicas that cannot be served: damaged, or on a full disk.",
            {(): counted.offline_count()},
        ),
        Metric(
            "stratalog_server_Upkeep_LiveFilesMax",
            GAUGE,
            "Most live files that the log of a led replica has.",
            {(): counted.live_files_max()},
        ),
        Metric(
            "stratalog_server_Upkeep_AppendPauseMsMax",
            GAUGE,
            "How long appends to a led replica wait at most because its upkeep is behind.",
            {(): counted.append_pause_ms_max()},
        ),
        *(
            Metric(
                f"kafka_server_BrokerTopicMetrics_{name}_total",
                COUNTER,
                doc,
                {(("topic", topic),): value for topic, value in values.items()},
            )
            for name, (doc, values) in by_topic.items()
        ),
        *(
            Metric(f"kafka_network_RequestMetrics_{name}", HISTOGRAM, doc, {produce: histogram})
            for name, (doc, histogram) in times.items()
        ),
    ]


def is_under_replicated(state: PartitionRecord) -> bool:
    """Fewer in sync than there are replicas, without those that a reassignment is just adding."""
    return len(state.isr) < len(state.replicas) - len(state.adding)


def prometheus_text(metrics_by_broker: Mapping[int, Iterable[Metric]]) -> str:
    """The metrics of several brokers in Prometheus' text format (0.0.4), each value labelled with its broker."""
    families: dict[str, list[tuple[int, Metric]]] = {}
    for broker_id, metrics in sorted(metrics_by_broker.items()):
        for metric in metrics:
            families.setdefault(metric.name, []).append((broker_id, metric))
    lines = []
    for name, found in families.items():
        lines += [f"# HELP {name} {found[0][1].doc}", f"# TYPE {name} {found[0][1].kind}"]
        for broker_id, metric in found:
            for labels, value in metric.values.items():
                lines += _lines(name, (("broker", str(broker_id)), *labels), value)
    return "".join(f"{line}\n" for line in lines)


def _lines(name: str, labels: Labels, value: float | Histogram) -> list[str]:
    if not isinstance(value, Histogram):
        return [f"{name}{_braced(labels)} {value}"]
    lines, seen = [], 0
    for bound, count in zip((*map(str, BOUNDS_MS), "+Inf"), list(value.counts), strict=True):
        seen += count
        lines.append(f"{name}_bucket{_braced((*labels, ('le', bound)))} {seen}")
    return [*lines, f"{name}_sum{_braced(labels)} {value.sum_ms}", f"{name}_count{_braced(labels)} {seen}"]


def _braced(labels: Labels) -> str:
    """Labels as Prometheus wants them; names of topics and the like need no escapes.

    >>> _braced((("broker", "1"), ("topic", "a")))
    '{broker="1",topic="a"}'
    """
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}"


def _min_isr(image: ClusterImage, state: PartitionRecord) -> int:
    return int(image.topic_config(state.topic).get("min.insync.replicas", "1"))
