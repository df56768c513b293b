"""Which ISRs a leader wants to change: who has caught up joins, who lags leaves (R17). Pure.

Kafka's `maybeExpandIsr` and `maybeShrinkIsr`. The changes of all partitions go into one commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from stratalog.replication.controller.brokers import IsrChange
from stratalog.replication.leader.partition import Partition

WantedIsr = tuple[Partition, tuple[int, ...]]


def expansions(partitions: Iterable[Partition], live: Collection[int], *, again: bool = False) -> list[WantedIsr]:
    """New ISRs with the followers that may join. From here on the high watermark waits for them, whatever
    becomes of the commit.

    again   also for followers whose joining was tried and whose outcome is not known
    """
    wanted: list[WantedIsr] = []
    for partition in partitions:
        joining = partition.may_join(live, again=again)
        if joining:
            partition.begin_joining(joining)
            wanted.append((partition, tuple(sorted({*partition.isr, *joining}))))
    return wanted


def shrinkings(partitions: Iterable[Partition], now_ms: int, lag_ms_max: int) -> list[WantedIsr]:
    """New ISRs without the followers that have not been caught up for longer than `lag_ms_max`."""
    wanted: list[WantedIsr] = []
    for partition in partitions:
        lagging = partition.out_of_sync(now_ms, lag_ms_max)
        if lagging:
            wanted.append((partition, tuple(r for r in partition.isr if r not in lagging)))
    return wanted


def all_isr_changes(
    partitions: Sequence[Partition], live: Collection[int], now_ms: int, lag_ms_max: int
) -> list[WantedIsr]:
    """The periodic look at everything; a partition changes in one direction at a time."""
    expanding = expansions(partitions, live, again=True)
    changing = {partition.state.topic_partition for partition, _ in expanding}
    rest = [partition for partition in partitions if partition.state.topic_partition not in changing]
    return expanding + shrinkings(rest, now_ms, lag_ms_max)


def isr_change(partition: Partition, isr: tuple[int, ...], broker_epochs: Mapping[int, int]) -> IsrChange:
    """What is asked of the metadata log. `broker_epochs`: under which registration each follower was heard."""
    state = partition.state
    return IsrChange(state.topic_partition, partition.leader_epoch, state.partition_epoch, isr, broker_epochs)
