"""Coordinators' metrics by Kafka's names: what groups, offsets and transactions there are, and what was done."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.coordinator.shard.metrics import TRANSACTION_STATES, CoordinatorCounts, coordinator_metrics
from stratalog.replication.coordinator.shard.shard import CoordinatorShard
from stratalog.replication.coordinator.transactions.transaction import TransactionState
from stratalog.replication.metrics import Histogram, Metric
from stratalog.replication.requests.groups import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from stratalog.replication.requests.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.replication import consumer_groups, transaction_tools
from tests.replication.coordinator.runtime.test_classic_groups import Groups
from tests.replication.group_coordinator import Coordinator, commit_request

WEEK_MS = 7 * 24 * 3_600_000
GROUPS, TRANSACTIONS = "kafka_server_group_coordinator_metrics", "kafka_server_transaction_coordinator_metrics"
CLASSIC = "kafka_coordinator_group_groupmetadatamanager"


def told(metrics: Iterable[Metric]) -> dict[str, float]:
    """What is not 0, by name and label; of a histogram how often it was observed."""
    found = {}
    for metric in metrics:
        for labels, value in metric.values.items():
            number = sum(value.counts) if isinstance(value, Histogram) else value
            if number:
                found[metric.name + "".join(f"/{label}" for _, label in labels)] = number
    return found


def of_shard(shard: CoordinatorShard, counts: CoordinatorCounts | None = None) -> dict[str, float]:
    return told(coordinator_metrics(counts or CoordinatorCounts(), [shard.held()]))


def test_what_nobody_has_is_told_as_0() -> None:
    metrics = coordinator_metrics(CoordinatorCounts(), [])
    assert told(metrics) == {}
    shown = {(metric.name, *(value for _, value in labels)) for metric in metrics for labels in metric.values}
    assert shown >= {
        (f"{GROUPS}_group_count", "consumer"),
        (f"{GROUPS}_consumer_group_count", "assigning"),
        (f"{GROUPS}_offset_commit_total",),
        (f"{CLASSIC}_numgroupspreparingrebalance",),
        (f"{TRANSACTIONS}_partition_load_time",),
    }


def test_every_state_of_a_transaction_that_is_stored_is_told() -> None:
    never_stored = {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
    assert {state.label for state in TransactionState} == {*TRANSACTION_STATES, *(s.label for s in never_stored)}


def test_classic_groups_by_state_and_their_offsets() -> None:
    coordinator = Coordinator()
    counts = coordinator.shard.table.counts
    coordinator.stable("a")
    coordinator.answer(commit_request({("t", 0): 1, ("t", 1): 1}, group_id="simple"))
    assert coordinator.commit_in_transaction(5) == "NONE"
    expected = {
        f"{GROUPS}_group_count/classic": 2,
        f"{CLASSIC}_numgroups": 2,
        f"{CLASSIC}_numgroupsstable": 1,
        f"{CLASSIC}_numgroupsempty": 1,
        f"{CLASSIC}_numoffsets": 2,
    }
    done = {f"{GROUPS}_group_completed_rebalance_total": 1, f"{GROUPS}_offset_commit_total": 3}
    assert of_shard(coordinator.shard, counts) == expected | done
    coordinator.join("b")
    held = of_shard(coordinator.shard)
    assert (held[f"{CLASSIC}_numgroupspreparingrebalance"], f"{CLASSIC}_numgroupsstable" in held) == (1, False)


def test_offsets_that_expired_or_were_deleted_are_counted() -> None:
    coordinator = Coordinator()
    counts = coordinator.shard.table.counts
    coordinator.answer(commit_request({("t", number): 1 for number in range(3)}, group_id="simple"))
    partitions = (OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9))
    coordinator.answer(OffsetDeleteRequest("simple", (OffsetDeleteRequestTopic("t", partitions),)))
    assert (counts.offset_deletions, counts.offset_expirations) == (1, 0)
    coordinator.advance(WEEK_MS + 3_600_000)
    assert (counts.offset_deletions, counts.offset_expirations) == (1, 2)
    assert of_shard(coordinator.shard) == {}


def test_consumer_groups_rebalance_by_a_new_group_epoch() -> None:
    coordinator = consumer_groups.Coordinator(t=4)
    counts = coordinator.table.counts
    first = consumer_groups.Consumer(coordinator, "a", ("t",))
    first.heartbeat()
    assert counts.consumer_group_rebalances == 1
    epoch = coordinator.group.group_epoch
    first.heartbeat()
    assert counts.consumer_group_rebalances == 1
    consumer_groups.Consumer(coordinator, "b", ("t",)).heartbeat()
    assert (counts.consumer_group_rebalances, coordinator.group.group_epoch) == (2, epoch + 1)
    assert coordinator.group.state_name == "Reconciling"


def test_transactional_ids_by_state() -> None:
    coordinator = transaction_tools.Coordinator()
    for name in ("a", "b", "c"):
        coordinator.ask(InitProducerIdRequest(name, 60_000))
    for name, producer_id in (("a", 1_001), ("b", 1_002)):
        coordinator.ask(AddPartitionsToTxnRequest(name, producer_id, 0, (transaction_tools.A,)))
    coordinator.ask(EndTxnRequest("b", 1_002, 0, False))
    prefix = "stratalog_server_transaction_coordinator_metrics_transaction_count"
    assert of_shard(coordinator.shard) == {f"{prefix}/Ongoing": 1, f"{prefix}/PrepareAbort": 1, f"{prefix}/Empty": 1}
    coordinator.write_markers()
    assert of_shard(coordinator.shard)[f"{prefix}/CompleteAbort"] == 1


def test_a_broker_counts_on_when_it_leads_anew_and_tells_what_it_holds_only_while_it_serves() -> None:
    running = Groups()
    running.answer(commit_request({("t", 0): 1}), end=1)
    loaded, held, committed = f"{GROUPS}_partition_load_time", f"{CLASSIC}_numoffsets", f"{GROUPS}_offset_commit_total"
    found = told(running.broker.coordinator_metrics())
    assert (found[loaded], found[held], found[committed]) == (1, 1, 1)
    running.lead(2, 1)
    assert told(running.broker.coordinator_metrics()) == {loaded: 1, committed: 1}
    running.lead(1, 2)
    assert told(running.broker.coordinator_metrics()) == {loaded: 1, committed: 1}, "it is not committed to yet"
    running.follow(1)
    found = told(running.broker.coordinator_metrics())
    assert (found[loaded], found[held], found[committed]) == (2, 1, 1)
