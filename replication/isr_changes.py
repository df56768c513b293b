"""Which ISRs a leader wants to change: who has caught up joins, who lags leaves (R17). Pure.

Kafka's `maybeExpandIsr` and `maybeShrinkIsr`. The changes of all partitions go into one commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from replication.leader_replica import LeaderReplica

WantedIsr = tuple[LeaderReplica, tuple[int, ...]]


def expansions(replicas: Iterable[LeaderReplica], live: Collection[int], *, again: bool = False) -> list[WantedIsr]:
    """New ISRs with the followers that may join. From here on the high watermark waits for them, whatever
    becomes of the commit.

    again   also for followers whose joining was tried and whose outcome is not known
    """
    wanted: list[WantedIsr] = []
    for replica in replicas:
        joining = replica.partition.may_join(live, again=again) if replica.partition else set()
        if joining:
            assert replica.partition is not None
            replica.partition.begin_joining(joining)
            wanted.append((replica, tuple(sorted({*replica.partition.isr, *joining}))))
    return wanted


def shrinkings(replicas: Iterable[LeaderReplica], now_ms: int, lag_ms_max: int) -> list[WantedIsr]:
    """New ISRs without the followers that have not been caught up for longer than `lag_ms_max`."""
    wanted: list[WantedIsr] = []
    for replica in replicas:
        lagging = replica.partition.out_of_sync(now_ms, lag_ms_max) if replica.partition else set()
        if lagging:
            assert replica.partition is not None
            wanted.append((replica, tuple(r for r in replica.partition.isr if r not in lagging)))
    return wanted


def all_isr_changes(
    replicas: Iterable[LeaderReplica], live: Collection[int], now_ms: int, lag_ms_max: int
) -> list[WantedIsr]:
    """The periodic look at everything; a partition changes in one direction at a time."""
    expanding = expansions(replicas, live, again=True)
    changing = {replica.state.topic_partition for replica, _ in expanding}
    rest = [replica for replica in replicas if replica.state.topic_partition not in changing]
    return expanding + shrinkings(rest, now_ms, lag_ms_max)
