"""What erasures promise, for the observers of a simulated cluster: erased is unreadable by every way. Pure.

ErasedStaysErased   every commit of a replica that says it has applied a request: no record of the request is in its
                    log, whether it was cut, copied again or led meanwhile
ErasedIsUnread      every read that began after the last replica had applied the request
ErasedIsGone        where the product says that no file has such a record, none has one, in the log or beside it
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import EraseRecord
from tests.simulation.shadow import Shadow, ShadowRecord

Log = tuple[str, int]
"""Topic id and partition."""


def predicate_of(key: bytes) -> str:
    """The request about all records of a key."""
    return json.dumps({"key": {"equals": key.decode()}})


@dataclass(frozen=True, slots=True)
class ErasedKey:
    """A request: the records of a key below an offset of one partition, of leader epochs up to `leader_epoch`."""

    erase_id: int
    key: bytes
    end_offset: int
    leader_epoch: int

    def matches(self, offset: int, record: ShadowRecord) -> bool:
        return offset < self.end_offset and record.key == self.key and record.epoch <= self.leader_epoch


@dataclass(slots=True)
class Erased:
    """The requests of all topics, by log and id. `now_ms`: virtual time.

    done_ms       when the last replica of a log had applied a request, by log and id
    published_ms  when a leader had published that, by log, id and broker
    """

    now_ms: Callable[[], int] = lambda: 0
    requests: dict[Log, dict[int, ErasedKey]] = field(default_factory=dict)
    done_ms: dict[tuple[Log, int], int] = field(default_factory=dict)
    published_ms: dict[tuple[Log, int, int], int] = field(default_factory=dict)

    def requested(self, topic_id: str, record: EraseRecord) -> None:
        key = str(json.loads(record.predicate)["key"]["equals"]).encode()
        ends = zip(record.end_offsets, record.leader_epochs, strict=True)
        for partition, (end_offset, leader_epoch) in enumerate(ends):
            asked = self.requests.setdefault((topic_id, partition), {})
            asked[record.erase_id] = ErasedKey(record.erase_id, key, end_offset, leader_epoch)

    def lost(self, image: ClusterImage) -> None:
        """The metadata log lost its tail: these requests are left."""
        known = set(image.topic_ids.values())
        self.requests = {log: asked for log, asked in self.requests.items() if log[0] not in known}
        for topic, asked in image.erases.items():
            for record in asked.values():
                self.requested(image.topic_ids[topic], record)

    def newest_id(self, log: Log) -> int:
        return max(self.requests.get(log, ()), default=0)

    def is_requested(self, log: Log, offset: int, record: ShadowRecord) -> bool:
        """Whether a record may be absent since its erasure was asked for."""
        return any(each.matches(offset, record) for each in self.requests.get(log, {}).values())

    def left_in(self, log: Log, shadow: Shadow) -> str:
        """A record that is in a replica's log although the replica has applied its request; empty if there is none."""
        for each in self.applied_by(log, shadow):
            for offset, record in shadow.records.items():
                if each.matches(offset, record):
                    return f"{record} at offset {offset} of {each}"
        return ""

    def applied_by(self, log: Log, shadow: Shadow) -> Iterator[ErasedKey]:
        """The requests that a replica says it has applied."""
        return (each for number, each in self.requests.get(log, {}).items() if number <= shadow.erased)

    def applied(self, log: Log, shadows: list[Shadow | None]) -> None:
        """A replica may have been the last one to apply requests. `shadows`: all replicas'."""
        least = min((0 if shadow is None else shadow.erased for shadow in shadows), default=0)
        for number in self.requests.get(log, {}):
            if number <= least:
                self.done_ms.setdefault((log, number), self.now_ms())

    def was_erased(self, log: Log, offset: int, record: ShadowRecord, since_ms: int) -> bool:
        """Whether all replicas had applied a request about this record when somebody began to read at `since_ms`."""
        asked = self.requests.get(log, {})
        return any(
            self.done_ms.get((log, number), since_ms) < since_ms and each.matches(offset, record)
            for number, each in asked.items()
        )

    def published(self, log: Log, broker_id: int, shadow: Shadow, version: int) -> None:
        """A leader published this version of its table, of which the shadow is the newest one."""
        for each in self.applied_by(log, shadow):
            if shadow.erased_version <= version:
                self.published_ms.setdefault((log, each.erase_id, broker_id), self.now_ms())

    def was_published(self, log: Log, offset: int, record: ShadowRecord, broker_id: int, since_ms: int) -> bool:
        """Whether this leader had published before `since_ms` that this record is erased on all replicas."""
        return self.was_erased(log, offset, record, since_ms) and any(
            self.published_ms.get((log, number, broker_id), since_ms) < since_ms and each.matches(offset, record)
            for number, each in self.requests.get(log, {}).items()
        )
