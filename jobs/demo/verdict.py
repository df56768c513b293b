"""The demo's verdict: the records sent compared with those consumed, and every claim as a checked line. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

FAILOVER_MS_MAX = 12_000


class KeyedLine(NamedTuple):
    """A record of the demo. Equal lines of one client are equal records, which are counted."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Differences:
    """How consumed records differ from those sent. All zero: every record once, each key's in order."""

    lost: int
    duplicated: int
    never_sent: int
    reordered_keys: int


def differences(sent: Iterable[KeyedLine], consumed: Iterable[KeyedLine]) -> Differences:
    """Compare both in the order of sending and of consuming.

    A key counts as reordered when exactly its records came, in another order.
    """
    sent, consumed = list(sent), list(consumed)
    expected, found = Counter(sent), Counter(consumed)
    excess = found - expected
    by_key = values_by_key(consumed)
    return Differences(
        lost=(expected - found).total(),
        duplicated=sum(count for record, count in excess.items() if record in expected),
        never_sent=sum(count for record, count in excess.items() if record not in expected),
        reordered_keys=sum(
            by_key.get(key, []) != values and Counter(by_key.get(key, [])) == Counter(values)
            for key, values in values_by_key(sent).items()
        ),
    )


def values_by_key(records: Iterable[KeyedLine]) -> dict[str, list[str]]:
    """Each key's values in order."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        values[record.key].append(record.value)
    return dict(values)


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledged record of the closed loop. Times are ms on one monotonic clock."""

    partition: int
    sent_ms: float
    acked_ms: float

    @property
    def latency_ms(self) -> float:
        return self.acked_ms - self.sent_ms


def failover_ms(acks: Iterable[Ack], partitions: set[int], kill_ms: float, dead_ms: float) -> float | None:
    """From the kill to the first acknowledgement by one of the dead broker's partitions; None: there was none.

    kill_ms  when the kill began; dead_ms  when the broker could answer no more
    """
    answered = [ack.acked_ms for ack in acks if ack.partition in partitions and ack.acked_ms > dead_ms]
    return min(answered) - kill_ms if answered else None


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` % of the values do not exceed (nearest rank); NaN for no values.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 50)
    2.0
    """
    if not values:
        return float("nan")
    rank = max(1, -(-len(values) * percent // 100))
    return sorted(values)[int(rank) - 1]


class PartitionEpoch(NamedTuple):
    """A partition's leader and leader epoch."""

    leader: int
    leader_epoch: int


def epochs_moved(
    before: Mapping[int, PartitionEpoch], after: Mapping[int, PartitionEpoch], killed: int
) -> dict[int, bool]:
    """For each partition whether its epoch is right: higher and under another leader if the killed broker led it, and
    not lower otherwise."""
    return {
        partition: (
            after[partition].leader_epoch > was.leader_epoch and after[partition].leader != killed
            if was.leader == killed
            else after[partition].leader_epoch >= was.leader_epoch
        )
        for partition, was in before.items()
    }


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    """One reader's result: rows in all replicas together, and how many records differ between replicas."""

    replicas: int
    rows: int
    differing: int


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the verdict."""

    name: str
    value: str
    holds: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that the demo measured.

    counted        hits in the table of the queries that share a group; `counts_differ`: of its (minute, status) counts
    shares         records that each of these queries read
    """

    sent: int
    acknowledged: int
    consumed: int
    counted: int
    shares: Sequence[int]
    counts_differ: int
    differences: Differences
    failover_ms: float | None
    before: Mapping[int, PartitionEpoch]
    after: Mapping[int, PartitionEpoch]
    killed: int
    sql: ReplicaComparison
    deltalake: ReplicaComparison


def verdict(outcome: Outcome) -> list[Check]:
    """Every claim with what was found; the demo passes when all hold."""
    found, sent = outcome.differences, outcome.sent
    return [
        Check("sent", f"{sent:,}", sent > 0, "lines of the web log"),
        Check("acknowledged", f"{outcome.acknowledged:,}", outcome.acknowledged == sent, "by the Spark sink, acks=all"),
        Check("consumed", f"{outcome.consumed:,}", outcome.consumed == sent, "by a Consumer, during all of it"),
        Check("lost", f"{found.lost:,}", found.lost == 0),
        Check("duplicated", f"{found.duplicated:,}", found.duplicated + found.never_sent == 0, _unknown(found)),
        Check("order per key", *_order(found)),
        _group(outcome),
        _failover(outcome.failover_ms),
        _epochs(outcome),
        _replicas("replicas by Delta SQL", outcome.sql, sent),
        _replicas("replicas by deltalake", outcome.deltalake, sent),
    ]


def _group(outcome: Outcome) -> Check:
    counts_hold = outcome.counted == outcome.sent and outcome.counts_differ == 0
    return Check(
        "hits read by a group",
        f"{outcome.counted:,}",
        counts_hold and all(outcome.shares),
        f"{' and '.join(f'{share:,}' for share in outcome.shares)} by its queries; {outcome.counts_differ} counts by "
        "minute and status differ from the file's",
    )


def _unknown(found: Differences) -> str:
    return f"{found.never_sent:,} were never sent" if found.never_sent else ""


def _order(found: Differences) -> tuple[str, bool]:
    return (f"broken for {found.reordered_keys:,} keys", False) if found.reordered_keys else ("kept", True)


def _failover(took_ms: float | None) -> Check:
    limit = f"from the kill to the next acknowledgement; at most {FAILOVER_MS_MAX / 1000:.0f} s"
    if took_ms is None:
        return Check("failover", "never", False, limit)
    return Check("failover", f"{took_ms / 1000:.1f} s", took_ms <= FAILOVER_MS_MAX, limit)


def _epochs(outcome: Outcome) -> Check:
    moved = epochs_moved(outcome.before, outcome.after, outcome.killed)
    led = [partition for partition, was in outcome.before.items() if was.leader == outcome.killed]
    names = ", ".join(str(partition) for partition in led)
    return Check(
        "leader epochs",
        f"{sum(moved.values())} of {len(moved)}",
        bool(led) and all(moved.values()),
        f"partitions {names} of broker {outcome.killed} began a new epoch, no epoch went back",
    )


def _replicas(name: str, found: ReplicaComparison, sent: int) -> Check:
    identical = found.differing == 0 and found.rows == sent * found.replicas
    value = "identical" if identical else f"{found.differing:,} records differ"
    return Check(name, value, identical, f"{found.rows:,} rows in {found.replicas} replicas of every partition")
