"""A coordinator shard that keeps one list: small enough to see through, with all that a shard can do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from replication.coordinator_shard import (
    NO_TOKEN,
    Answered,
    CoordinatorRecord,
    Decision,
    RemoteAppend,
    RemoteAppended,
    ShardPlace,
)
from storage.errors import InvalidRequestError, StratalogError
from storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition


@dataclass(frozen=True, slots=True)
class Add:
    """Put a value at the end; the answer is `Added`. With a producer it is pending until its transaction ends."""

    value: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    effects: tuple[RemoteAppend, ...] = ()


@dataclass(frozen=True, slots=True)
class Added:
    position: int
    value: str
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Read:
    """The answer is the list as a tuple."""


@dataclass(frozen=True, slots=True)
class AwaitNext:
    """Answered with the value that is added next, or with None after `timeout_ms`."""

    timeout_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class Explode:
    """A defect, while the shard decides."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Partitions were deleted: noted in the list."""

    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class ListShard:
    """`journal` tells what the runtime did with it."""

    place: ShardPlace
    values: list[str] = field(default_factory=list)
    pending: dict[int, list[str]] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    journal: list[object] = field(default_factory=list)

    def replay(
        self,
        record: CoordinatorRecord,
        timestamp_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        value = (record.value or b"").decode()
        self.journal.append(("replay", value, timestamp_ms, producer_id))
        if producer_id == NO_PRODUCER_ID:
            self.values.append(value)
        else:
            self.pending.setdefault(producer_id, []).append(value)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.journal.append(("end", producer_id, producer_epoch, is_commit))
        ended = self.pending.pop(producer_id, [])
        self.values += ended if is_commit else []

    def loaded(self, now_ms: int) -> Decision:
        self.journal.append(("loaded", now_ms))
        return Decision()

    def decide(self, request: object, token: int, now_ms: int) -> Decision:
        match request:
            case Add(value=value, producer_id=producer_id, producer_epoch=epoch, effects=effects):
                return self._add(value, token, producer_id, epoch, effects)
            case Read():
                return Decision(answers=(Answered(token, tuple(self.values)),))
            case AwaitNext(timeout_ms=timeout_ms):
                self.waiting[token] = now_ms + timeout_ms
                return Decision()
            case Gone(partitions=partitions):
                return Decision(tuple(CoordinatorRecord(b"gone", str(each).encode()) for each in partitions))
            case RemoteAppended():
                assert token == NO_TOKEN
                self.journal.append(request)
                return Decision()
            case Explode():
                self.values.append("half a change")
                raise ZeroDivisionError("a defect")
        raise InvalidRequestError(f"what is {request}?")

    def _add(
        self, value: str, token: int, producer_id: int, producer_epoch: int, effects: tuple[RemoteAppend, ...]
    ) -> Decision:
        position = len(self.values)
        waiting, self.waiting = list(self.waiting), {}
        return Decision(
            (CoordinatorRecord(b"%d" % position, value.encode()),),
            (
                Answered(token, Added(position, value, self.place.leader_epoch)),
                *(Answered(each, value) for each in waiting),
            ),
            producer_id,
            producer_epoch,
            effects,
        )

    def expire(self, now_ms: int) -> Decision:
        late = [token for token, due_ms in self.waiting.items() if due_ms <= now_ms]
        for token in late:
            del self.waiting[token]
        return Decision(answers=tuple(Answered(token, None) for token in late))

    @property
    def next_due_ms(self) -> int | None:
        return min(self.waiting.values(), default=None)

    def give_up(self, error: StratalogError) -> tuple[Answered, ...]:
        self.journal.append(("give up", error.name))
        return tuple(Answered(token, error) for token in self.waiting)
