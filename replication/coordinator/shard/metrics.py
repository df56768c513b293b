"""Counters of one broker's coordinators and gauges of their shards, by the names of Kafka's metrics. Pure.

Counters continue when shards come and go; they are changed in the broker's loop with each decision. Gauges are sums
over the active shards, computed by the thread that reads them.

Kafka has a rate and a count of each (`offset-commit-rate`, `offset-commit-count`); here it is the count, as of all
meters, from which Prometheus makes rates. Source: `GroupCoordinatorMetrics`, `CoordinatorRuntimeMetricsImpl`,
`TransactionStateManager`. Transactions by state are ours: Kafka has no such metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from stratalog.replication.metrics import COUNTER, GAUGE, HISTOGRAM, Histogram, Labels, Metric

GROUP_METRICS: Final = "kafka_server_group_coordinator_metrics"
TRANSACTION_METRICS: Final = "kafka_server_transaction_coordinator_metrics"
CLASSIC_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
CONSUMER_STATES: Final = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
TRANSACTION_STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"
)  # fmt: skip
"""States that are stored."""

Held = tuple[str, Labels]
"""A gauge of a shard: name and labels."""

NUM_OFFSETS: Final[Held] = ("kafka_coordinator_group_groupmetadatamanager_numoffsets", ())


@dataclass(slots=True)
class CoordinatorCounts:
    """One broker's counters.

    offset_commits             offsets, not requests; those of transactions when they are decided
    group_completed_rebalances classic groups that became stable
    consumer_group_rebalances  times that a heartbeat began a group epoch (KIP-848)
    load_times                 by topic, from when a shard's partition is led here until it serves, in ms
    """

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    group_completed_rebalances: int = 0
    consumer_group_rebalances: int = 0
    load_times: Mapping[str, Histogram] = field(
        default_factory=lambda: {topic: Histogram() for topic in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)}
    )


def groups_held(groups: Iterable[tuple[str, str]], offsets: int) -> Counter[Held]:
    """The gauges of a group shard: groups are given as (type, state)."""
    held: Counter[Held] = Counter({NUM_OFFSETS: offsets})
    for group_type, state in groups:
        held[_group_count(group_type)] += 1
        if group_type == "consumer":
            held[_consumer_group_count(state)] += 1
        else:
            held[_classic_group_count("")] += 1
            held[_classic_group_count(state)] += 1
    return held


def transactions_held(states: Iterable[str]) -> Counter[Held]:
    """The gauges of a transaction shard, from the state of each transactional id."""
    return Counter(_transaction_count(state) for state in states)


def coordinator_metrics(counted: CoordinatorCounts, shards: Iterable[Mapping[Held, int]]) -> list[Metric]:
    """All metrics; gauges without a shard are 0."""
    held: Counter[Held] = Counter()
    for each in shards:
        held.update(each)
    values: dict[str, dict[Labels, float | Histogram]] = {}
    for name, labels in _GAUGES:
        values.setdefault(name, {})[labels] = held[name, labels]
    return [
        *(Metric(name, GAUGE, _GAUGE_DOCS[name], found) for name, found in values.items()),
        *(
            Metric(f"{GROUP_METRICS}_{name}_total", COUNTER, doc, {(): value})
            for name, doc, value in (
                ("offset_commit", "Offsets that were committed.", counted.offset_commits),
                ("offset_expiration", "Offsets that expired.", counted.offset_expirations),
                ("offset_deletion", "Offsets that administrators deleted.", counted.offset_deletions),
                ("group_completed_rebalance", "Classic groups became stable.", counted.group_completed_rebalances),
                ("consumer_group_rebalance", "Consumer groups began an epoch.", counted.consumer_group_rebalances),
            )
        ),
        *(
            Metric(
                f"{group}_partition_load_time",
                HISTOGRAM,
                "Milliseconds from leading a coordinator's partition to serving it.",
                {(): counted.load_times[topic]},
            )
            for topic, group in ((GROUP_METADATA_TOPIC, GROUP_METRICS), (TRANSACTION_STATE_TOPIC, TRANSACTION_METRICS))
        ),
    ]


def _group_count(group_type: str) -> Held:
    return f"{GROUP_METRICS}_group_count", (("protocol", group_type),)


def _consumer_group_count(state: str) -> Held:
    return f"{GROUP_METRICS}_consumer_group_count", (("state", state.lower()),)


def _classic_group_count(state: str) -> Held:
    return f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}", ()


def _transaction_count(state: str) -> Held:
    return "stratalog_server_transaction_coordinator_metrics_transaction_count", (("state", state),)


_GAUGES: Final[tuple[Held, ...]] = (
    _group_count("classic"),
    _group_count("consumer"),
    *map(_consumer_group_count, CONSUMER_STATES),
    *map(_classic_group_count, ("", *CLASSIC_STATES)),
    NUM_OFFSETS,
    *map(_transaction_count, TRANSACTION_STATES),
)
_GAUGE_DOCS: Final[Mapping[str, str]] = {
    _group_count("")[0]: "Groups by rebalance protocol.",
    _consumer_group_count("")[0]: "Consumer groups (KIP-848) by state.",
    _classic_group_count("")[0]: "Classic groups.",
    **{_classic_group_count(state)[0]: f"Classic groups in {state}." for state in CLASSIC_STATES},
    NUM_OFFSETS[0]: "Committed offsets.",
    _transaction_count("")[0]: "Transactional ids by the state of their transaction.",
}
