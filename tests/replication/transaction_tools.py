"""A transaction coordinator for tests: a shard, its log as a list, and markers that wait to be written."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.shard.shard import (
    Answered,
    CoordinatorRecord,
    Decision,
    RemoteAppend,
    RemoteAppended,
)
from stratalog.replication.coordinator.transactions.records import transaction_of, transactional_id_of
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.coordinator.transactions.transaction import Transaction, TransactionState
from stratalog.storage.records import TopicPartition

A, B, C = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("out", 0)
TX = "tx"


class Coordinator:
    """One shard. `log` has the committed records; a failover folds it under the next coordinator epoch.

    `answers` by token, `effects` in the order in which they were performed.
    """

    def __init__(self, partitions: Iterable[TopicPartition] = (A, B, C), **settings: object) -> None:
        self.config = BrokerConfig.from_properties({k.replace("_", "."): v for k, v in settings.items()})
        self.partitions = set(partitions)
        self.log: list[CoordinatorRecord] = []
        self.answers: dict[int, Any] = {}
        self.effects: list[RemoteAppend] = []
        self.next_id: int | None = 1_000
        self.epoch = 0
        self.now_ms = 10_000
        self.shard = self._shard()

    def _shard(self) -> TransactionShard:
        image: Any = SimpleNamespace(partitions=self.partitions, topic_config=lambda _topic: {})
        return TransactionShard(self.epoch, self.config, lambda: image, self._new_id)

    def _new_id(self) -> int | None:
        if self.next_id is not None:
            self.next_id += 1
        return self.next_id

    def ask(self, request: object, token: int = 1) -> Any:
        """The answer to a request whose records are committed."""
        self.accept(self.shard.decide(request, token, self.now_ms))
        return self.answers.pop(token, None)

    def accept(self, decision: Decision, *, is_stored: bool = True) -> None:
        """Act as a runtime: fold the records at once; when they are committed, answer and perform the effects."""
        for record in decision.records:
            self.shard.replay(record, self.now_ms)
        if not is_stored:
            return
        self.log.extend(decision.records)
        for token, response in decision.answers:
            self.answers[token] = response
        self.effects.extend(decision.effects)

    def fail_over(self) -> None:
        """Another broker folds the log; waiting requests are lost."""
        self.epoch += 1
        self.effects.clear()
        self.shard = self._shard()
        for record in self.log:
            self.shard.replay(record, self.now_ms)
        self.accept(self.shard.loaded(self.now_ms))

    def pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        while self.shard.next_due_ms is not None and self.shard.next_due_ms <= self.now_ms:
            self.accept(self.shard.expire(self.now_ms))

    def written(self, effect: RemoteAppend, error: Any = None) -> None:
        """Report the outcome of a marker to the shard."""
        outcome = RemoteAppended(effect.topic_partition, effect.context, error)
        self.accept(self.shard.decide(outcome, -1, self.now_ms))

    def write_markers(self) -> list[TopicPartition]:
        """Write every marker that waits; their partitions."""
        effects, self.effects = self.effects, []
        for effect in effects:
            self.written(effect)
        return [effect.topic_partition for effect in effects]

    def state(self, transactional_id: str = TX) -> Transaction | None:
        """The state of a transactional id by the committed log."""
        found = None
        for record in self.log:
            if transactional_id_of(record.key) == transactional_id:
                found = None if record.value is None else transaction_of(transactional_id, record.value)
        return found

    def label(self) -> str:
        known = self.state()
        return TransactionState.DEAD.label if known is None else known.state.label


__all__ = ["A", "B", "C", "TX", "Answered", "Coordinator"]
