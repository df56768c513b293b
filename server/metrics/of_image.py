"""The gauges of a broker that follow from the metadata: of its own partitions, and on the controller of all. Pure.

Source: Kafka's `ReplicaManager`, `QuorumControllerMetrics`, `ControllerMetadataMetrics`.
"""

from __future__ import annotations

from stratalog.replication.controller.election.eligible_leaders import effective_min_isr, topic_min_isr
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.metrics import GAUGE, Metric


def is_under_replicated(state: PartitionRecord) -> bool:
    """Whether fewer replicas are in sync than there are, without those that a reassignment is adding."""
    return len(state.isr) < len(state.replicas) - len(state.adding)


class MinIsrs:
    """`min.insync.replicas` by topic, each read once: as far as it can be reached (`Partition.effectiveMinIsr`)."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._known: dict[str, int] = {}

    def of(self, state: PartitionRecord) -> int:
        """That of a partition's topic, at most the number of replicas."""
        known = self._known.get(state.topic)
        if known is None:
            known = self._known[state.topic] = topic_min_isr(self._image, state.topic)
        return effective_min_isr(state.replicas, known)


def image_metrics(image: ClusterImage, broker_id: int) -> list[Metric]:
    """Those of broker `broker_id`."""
    own = [*_of_replicas(image, broker_id), *_of_controller(image, broker_id)]
    return [
        *(Metric(f"kafka_{name}", GAUGE, doc, {(): value}) for name, doc, value in own),
        _imbalance(image, broker_id),
    ]


def _of_replicas(image: ClusterImage, broker_id: int) -> list[tuple[str, str, int]]:
    hosted = [state for state in image.partitions.values() if broker_id in state.replicas]
    led = [state for state in hosted if state.leader == broker_id]
    min_isrs = MinIsrs(image)
    return [
        ("server_replicamanager_leadercount", "Led partitions.", len(led)),
        ("server_replicamanager_partitioncount", "Hosted replicas.", len(hosted)),
        (
            "server_replicamanager_underreplicatedpartitions",
            "Led partitions whose ISR is smaller than their set of replicas.",
            sum(is_under_replicated(state) for state in led),
        ),
        (
            "server_replicamanager_underminisrpartitioncount",
            "Led partitions whose ISR is smaller than min.insync.replicas.",
            sum(len(state.isr) < min_isrs.of(state) for state in led),
        ),
        (
            "server_replicamanager_atminisrpartitioncount",
            "Led partitions whose ISR is just min.insync.replicas.",
            sum(len(state.isr) == min_isrs.of(state) for state in led),
        ),
        (
            "server_replicamanager_reassigningpartitions",
            "Led partitions under reassignment.",
            sum(bool(state.adding or state.removing) for state in led),
        ),
    ]


def _of_controller(image: ClusterImage, broker_id: int) -> list[tuple[str, str, int]]:
    """0 on all brokers but the controller, so that a sum over brokers is the cluster's."""
    is_controller = image.controller_id == broker_id
    states = list(image.partitions.values()) if is_controller else []
    live = len(image.live_brokers()) if is_controller else 0
    found = [
        ("activecontrollercount", "1 on the controller.", int(is_controller)),
        ("offlinepartitionscount", "Partitions without a leader.", sum(state.leader == NO_LEADER for state in states)),
        (
            "preferredreplicaimbalancecount",
            "Partitions that their preferred replica does not lead.",
            sum(state.leader != state.replicas[0] for state in states),
        ),
        ("globaltopiccount", "Topics.", len(image.topic_ids) if is_controller else 0),
        ("globalpartitioncount", "Partitions.", len(states)),
        ("activebrokercount", "Brokers that are not fenced.", live),
        ("fencedbrokercount", "Brokers that are down.", len(image.brokers) - live if is_controller else 0),
        (
            "topicstobedeletedcount",
            "Deleted topics of which a broker still has replicas.",
            len(image.deletions) if is_controller else 0,
        ),
    ]
    on = "; on the controller."
    first, *others = found
    shown = [first, *((name, doc.removesuffix(".") + on, value) for name, doc, value in others)]
    return [(f"controller_kafkacontroller_{name}", doc, value) for name, doc, value in shown]


def _imbalance(image: ClusterImage, broker_id: int) -> Metric:
    preferred = [state for state in image.partitions.values() if state.replicas[0] == broker_id]
    by_others = sum(state.leader not in (broker_id, NO_LEADER) for state in preferred)
    return Metric(
        "stratalog_controller_leaderimbalance_percent",
        GAUGE,
        "Of the partitions that prefer this broker, the share that others lead, 0 to 1; above "
        "leader.imbalance.per.broker.percentage leaderships move back.",
        {(): by_others / len(preferred) if preferred else 0.0},
    )
