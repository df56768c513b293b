"""A coordinator shard that keeps one list: small, with everything that a shard can do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.replication.coordinator.shard.metrics import Held
from stratalog.replication.coordinator.shard.shard import (
    NO_TOKEN,
    Answered,
    CoordinatorRecord,
    Decision,
    RemoteAppend,
    RemoteAppended,
    ShardPlace,
)
from stratalog.storage.errors import InvalidRequestError, StratalogError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from stratalog.storage.transactions import OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Add:
    """Append a value; the answer is `Added`. With a producer it is pending until its transaction ends.

    The record's key is `position/leader epoch`, as the shard had them when it decided.
    """

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
    """The answer is the list as a tuple. `is_certain`: only the present coordinator may answer, not a former one."""

    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class ReadByEpoch:
    """The answer is `Listed`."""


@dataclass(frozen=True, slots=True)
class Listed:
    values: tuple[str, ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class AwaitNext:
    """Answered with the value that is added next, or with None after `timeout_ms`."""

    timeout_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class Explode:
    """A defect, while the shard decides."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Partitions were deleted: recorded in the list."""

    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class ListShard:
    """It records the runtime's calls; `was_polled`: how often the runtime read its next timer."""

    place: ShardPlace
    values: list[str] = field(default_factory=list)
    pending: dict[int, list[str]] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    replayed: list[str] = field(default_factory=list)
    loaded_ms: list[int] = field(default_factory=list)
    outcomes: list[RemoteAppended] = field(default_factory=list)
    was_polled: int = 0

    def replay(
        self,
        record: CoordinatorRecord,
        timestamp_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        value = (record.value or b"").decode()
        self.replayed.append(value)
        if producer_id == NO_PRODUCER_ID:
            self.values.append(value)
        else:
            self.pending.setdefault(producer_id, []).append(value)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        ended = self.pending.pop(producer_id, [])
        self.values += ended if is_commit else []

    def loaded(self, now_ms: int) -> Decision:
        self.loaded_ms.append(now_ms)
        return Decision()

    def decide(self, request: object, token: int, now_ms: int) -> Decision:
        match request:
            case Add(value=value, producer_id=producer_id, producer_epoch=epoch, effects=effects):
                return self._add(value, token, producer_id, epoch, effects)
            case Read(is_certain=is_certain):
                return Decision(answers=(Answered(token, tuple(self.values)),), is_read=is_certain)
            case ReadByEpoch():
                return Decision(answers=(Answered(token, Listed(tuple(self.values), self.place.leader_epoch)),))
            case AwaitNext(timeout_ms=timeout_ms):
                self.waiting[token] = now_ms + timeout_ms
                return Decision()
            case Gone(partitions=partitions):
                return Decision(tuple(self._record(at, str(each)) for at, each in enumerate(partitions)))
            case RemoteAppended():
                assert token == NO_TOKEN
                self.outcomes.append(request)
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
            (self._record(0, value),),
            (
                Answered(token, Added(position, value, self.place.leader_epoch)),
                *(Answered(each, value) for each in waiting),
            ),
            producer_id,
            producer_epoch,
            effects,
            verified=OffsetAndEpoch(1 << 40, self.place.leader_epoch),
        )

    def _record(self, at: int, value: str) -> CoordinatorRecord:
        return CoordinatorRecord(b"%d/%d" % (len(self.values) + at, self.place.leader_epoch), value.encode())

    def expire(self, now_ms: int) -> Decision:
        late = [token for token, due_ms in self.waiting.items() if due_ms <= now_ms]
        for token in late:
            del self.waiting[token]
        return Decision(answers=tuple(Answered(token, None) for token in late))

    @property
    def next_due_ms(self) -> int | None:
        self.was_polled += 1
        return min(self.waiting.values(), default=None)

    def held(self) -> dict[Held, int]:
        return {}

    def unload(self, error: StratalogError) -> tuple[Answered, ...]:
        return tuple(Answered(token, error) for token in self.waiting)
