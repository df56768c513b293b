"""ListOffsets: the offsets of places and times in partitions, asked of their leaders. I/O: requests to leaders.

Source: Kafka's `ListOffsetsHandler`, `PartitionLeaderStrategy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from stratalog.clients.wire.wire_cluster import RETRY_MS, WireCluster
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.server.offset_spec import ListedOffset
from stratalog.storage.errors import LeaderNotAvailableError, StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of
from stratalog.wire.messages.schema import Entity

LIST_OFFSETS_VERSION = 9
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1
"""The replica id of a request that is no broker's."""
NO_EPOCH = -1
Listed = tuple[dict[TopicPartition, ListedOffset], dict[TopicPartition, StratalogError]]
"""The offsets of partitions, and the errors of those without one."""


class ListedOffsets:
    """Asks leaders, again while they are moving. Thread-safe."""

    def __init__(self, cluster: WireCluster) -> None:
        self._cluster = cluster

    def of(
        self, times: Mapping[TopicPartition, int], timeout_ms: int, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset of each partition's time, which may be one of `server.offset_spec`.

        isolation  with READ_COMMITTED the latest offset is the last stable one
        Raises the error of the first partition that has one which does not pass within `timeout_ms`.
        """
        clock = self._cluster.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        found: dict[TopicPartition, ListedOffset] = {}
        while True:
            wanted = {tp: at for tp, at in times.items() if tp not in found}
            listed, errors = self._ask(wanted, max(RETRY_MS, deadline_ms - clock.monotonic_ms()), isolation)
            found |= listed
            if not errors:
                return {tp: found[tp] for tp in times}
            lasting = [error for error in errors.values() if not error.retriable]
            if lasting or clock.monotonic_ms() >= deadline_ms:
                raise (lasting or list(errors.values()))[0]
            clock.sleep_ms(RETRY_MS)
            self._cluster.refresh()

    def now(self, times: Mapping[TopicPartition, int], timeout_ms: int) -> Listed:
        """As `of`, asked once: the offsets, and the errors of partitions without one."""
        return self._ask(times, timeout_ms, READ_UNCOMMITTED)

    def begin(self, times: Mapping[TopicPartition, int], timeout_ms: int) -> Callable[[], Listed]:
        """As `now`, without waiting: leaders are asked, and what is returned waits for their answers."""
        return self._begin(times, timeout_ms, READ_UNCOMMITTED)

    def _ask(self, times: Mapping[TopicPartition, int], timeout_ms: int, isolation: int) -> Listed:
        return self._begin(times, timeout_ms, isolation)()

    def _begin(self, times: Mapping[TopicPartition, int], timeout_ms: int, isolation: int) -> Callable[[], Listed]:
        errors: dict[TopicPartition, StratalogError] = {}
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for named, time in times.items():
            leader = self._cluster.image.partition(named).leader
            if leader == NO_LEADER:
                errors[named] = LeaderNotAvailableError(f"{named} has no leader")
            else:
                by_leader.setdefault(leader, {})[named] = time
        messages = {leader: list_offsets_message(wanted, isolation) for leader, wanted in by_leader.items()}
        return partial(_listed, by_leader, errors, self._cluster.begin_each(messages, timeout_ms))


def _listed(
    by_leader: Mapping[int, Mapping[TopicPartition, int]],
    errors: dict[TopicPartition, StratalogError],
    answers: Callable[[], Mapping[int, Entity | StratalogError]],
) -> Listed:
    """What the leaders answered, and why others have no offset."""
    listed: dict[TopicPartition, ListedOffset] = {}
    for leader, answer in answers().items():
        if isinstance(answer, StratalogError):
            errors |= dict.fromkeys(by_leader[leader], answer)
            continue
        for named, part in listed_partitions(answer.topics):
            error = error_of(part)
            if error is None:
                epoch = None if part.leader_epoch == NO_EPOCH else part.leader_epoch
                listed[named] = ListedOffset(part.offset, part.timestamp, epoch)
            else:
                errors[named] = type(error)(f"{named}: {error}")
    return listed, errors


def list_offsets_message(times: Mapping[TopicPartition, int], isolation: int) -> Message:
    """A request to the leader of these partitions."""
    by_topic: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), time in times.items():
        asked = {"partition_index": partition, "current_leader_epoch": NO_EPOCH, "timestamp": time}
        by_topic.setdefault(topic, []).append(asked)
    topics = [{"name": topic, "partitions": asked} for topic, asked in by_topic.items()]
    values = {"replica_id": CONSUMER, "isolation_level": isolation, "topics": topics}
    return Message(values, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION)


def listed_partitions(topics: Iterable[Entity]) -> Iterable[tuple[TopicPartition, Entity]]:
    """The parts of a response about partitions, by name."""
    return ((TopicPartition(topic.name, each.partition_index), each) for topic in topics for each in topic.partitions)
