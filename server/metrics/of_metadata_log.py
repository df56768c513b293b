"""The metadata log and its controller, by the names of Kafka's Raft and controller metrics. Pure.

There is no Raft: the metadata log is a table at the metadata root, and the controller is its writer. So the quorum's
leader is the controller, its epoch the controller epoch, and the Raft channel the calls to that root.
Source: Kafka's `KafkaRaftMetrics`, `QuorumControllerMetrics`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.replication.controller.controller_counts import ControllerCounts
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metrics import COUNTER, GAUGE, HISTOGRAM, Labels, Metric
from stratalog.server.metrics.rates import DecayingRates
from stratalog.storage.metering.calls import StoreCalls


@dataclass(frozen=True, slots=True)
class MetadataLogState:
    """The metadata log as a broker has it.

    end_offset    of what it has folded; all of it is committed
    commit_count  commits that its own decisions made, in `commit_ms` together
    calls         of this process, to the metadata root
    """

    end_offset: int
    commit_count: int
    commit_ms: int
    calls: StoreCalls


def metadata_log_metrics(
    image: ClusterImage, broker_id: int, state: MetadataLogState, rates: DecayingRates, now_ms: int
) -> list[Metric]:
    """The gauges that Kafka names after Raft. `rates` has a window of a minute."""
    is_leader = image.controller_id == broker_id
    grows = rates.rate("metadata-records", state.end_offset, now_ms)
    commits = rates.rate("metadata-commits", state.commit_count, now_ms)
    commit_ms = rates.rate("metadata-commit-ms", state.commit_ms, now_ms)
    gauges = (
        ("current_leader", "The controller.", image.controller_id),
        ("current_vote", "The controller, which won by the first commit of its epoch.", image.controller_id),
        ("current_epoch", "The controller epoch.", image.controller_epoch),
        ("high_watermark", "End of the metadata log: all of it is committed.", state.end_offset),
        ("log_end_offset", "End of the metadata log, as this broker has read it.", state.end_offset),
        ("append_records_rate", "Records that were appended a second; on the controller.", grows if is_leader else 0),
        ("fetch_records_rate", "Records that were read a second; on other brokers.", 0 if is_leader else grows),
        ("commit_latency_avg", "Milliseconds of a commit of this broker.", commit_ms / commits if commits else 0),
    )
    current: Labels = (("current_state", "leader" if is_leader else "follower"),)
    channel = (
        ("request", "Calls to the metadata root.", state.calls.total),
        ("response", "Calls to the metadata root without a fault.", state.calls.total - state.calls.failed),
        ("incoming_byte", "Bytes read from the metadata root.", state.calls.read_bytes),
        ("outgoing_byte", "Bytes written to the metadata root.", state.calls.written_bytes),
    )
    return [
        *(Metric(f"kafka_server_raftmetrics_{name}", GAUGE, doc, {(): value}) for name, doc, value in gauges),
        Metric("kafka_server_raftmetrics_current_state", GAUGE, "1 for leader or follower.", {current: 1}),
        *(
            Metric(f"kafka_server_raftchannelmetrics_{name}_total", COUNTER, doc, {(): value})
            for name, doc, value in channel
        ),
    ]


def controller_metrics(counts: ControllerCounts, end_offset: int) -> list[Metric]:
    """What a candidate counted while it was the controller, since its process began."""
    gauges = (
        ("newactivecontrollerscount", "Controller epochs that this broker began.", counts.elections_won),
        ("timedoutbrokerheartbeatcount", "Brokers that it fenced.", counts.expired_sessions),
        ("eventqueueoperationsstartedcount", "Turns of its controller thread.", counts.step_time.count),
        ("lastappliedrecordoffset", "Offset of the last metadata record that it knows.", end_offset - 1),
        ("lastcommittedrecordoffset", "The same: what it knows is committed.", end_offset - 1),
    )
    of_stats = "kafka_controller_controllerstats_"
    return [
        *(Metric(f"kafka_controller_kafkacontroller_{name}", GAUGE, doc, {(): value}) for name, doc, value in gauges),
        Metric(
            f"{of_stats}uncleanleaderelections_total",
            COUNTER,
            "Elections in which records may be lost; on the controller.",
            {(): counts.unclean_elections},
        ),
        Metric(
            f"{of_stats}leaderelections_total",
            COUNTER,
            "Partitions that got another leader; on the controller.",
            {(): counts.leader_elections},
        ),
        Metric(
            "kafka_controller_controllereventmanager_eventqueueprocessingtimems",
            HISTOGRAM,
            "Milliseconds of a turn of the controller thread.",
            {(): counts.step_time},
        ),
    ]
