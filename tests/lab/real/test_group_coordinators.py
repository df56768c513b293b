"""Coordinators of groups are killed while offsets are committed: nothing acknowledged is lost, and others continue."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.jobs.text.record_decoders import offsets_decoder
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import StratalogError
from tests.waiting import wait_until

GROUP = CoordinatorType.GROUP
GROUPS = tuple(f"group-{number}" for number in range(6))
SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 200,
    "replica.lag.time.max.ms": 2_000,
    "offsets.topic.num.partitions": 10,
}
ANSWER_S = 60
COMMITS_AWAITED = 20

T = TypeVar("T")


class Caller:
    """Sends requests to coordinators of a running cluster and waits for their answers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def coordinator_of(self, group_id: str) -> int:
        """The broker that coordinates the group, by the answer of a running broker; -1: none right now."""
        for broker in list(self._cluster.brokers().values()):
            request = FindCoordinatorRequest(GROUP, (group_id,))
            found: FindCoordinatorResponse | None = _awaited(partial(broker.find_coordinator, request))
            if found is not None:
                return found.coordinators[0].node_id
        return -1

    def ask(self, group_id: str, request: object) -> object:
        """The answer, which may be an error; None when there is no coordinator, or no answer."""
        broker = self._cluster.brokers().get(self.coordinator_of(group_id))
        return broker and _awaited(partial(broker.coordinator, GROUP, group_id, request))

    def committed(self, group_id: str) -> int | None:
        """The group's committed offset; None without an answer."""
        answer = self.ask(group_id, OffsetFetchRequest((OffsetFetchRequestGroup(group_id),)))
        if not isinstance(answer, OffsetFetchResponse) or answer.groups[0].error is not None:
            return None
        return answer.groups[0].topics[0].partitions[0].committed_offset if answer.groups[0].topics else -1


def _awaited(ask: Callable[[Callable[[T], None]], None]) -> T | None:
    answers: list[T] = []
    is_answered = threading.Event()

    def answer(given: T) -> None:
        answers.append(given)
        is_answered.set()

    ask(answer)
    return answers[0] if is_answered.wait(ANSWER_S) else None


class Committer(threading.Thread):
    """Commits offsets 0, 1, 2 … of one group, each until it is acknowledged. `acked`: the last one."""

    def __init__(self, caller: Caller, group_id: str) -> None:
        super().__init__(name=group_id, daemon=True)
        self.group_id = group_id
        self.acked = -1
        self.unexpected: list[object] = []
        self._caller = caller
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            partition = OffsetCommitRequestPartition(0, self.acked + 1, committed_metadata=self.group_id)
            request = OffsetCommitRequest(self.group_id, (OffsetCommitRequestTopic("t", (partition,)),))
            answer = self._caller.ask(self.group_id, request)
            if isinstance(answer, OffsetCommitResponse) and answer.topics[0].partitions[0].error is None:
                self.acked += 1
            elif isinstance(answer, StratalogError) and not answer.retriable:
                self.unexpected.append(answer)
            self._is_over.wait(0.005)

    def end(self) -> None:
        self._is_over.set()
        self.join()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_committed_offsets_outlive_their_coordinators(tmp_path: Path) -> None:
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=SETTINGS) as cluster:
        caller = Caller(cluster)
        committers = [Committer(caller, group_id) for group_id in GROUPS]
        for committer in committers:
            committer.start()
        for round_number in range(3):
            before = {each.group_id: each.acked for each in committers}
            wait_until(lambda: have_moved(committers, before), "offsets are committed")  # noqa: B023 - used at once
            victim = caller.coordinator_of(GROUPS[round_number])
            before = {each.group_id: each.acked for each in committers}
            cluster.kill(victim)
            wait_until(lambda: have_moved(committers, before), "other coordinators continue")  # noqa: B023 - used at once
            cluster.restart(victim)
        for committer in committers:
            committer.end()
        assert [each.unexpected for each in committers] == [[]] * len(GROUPS)
        for committer in committers:
            wait_until(lambda: caller.committed(committer.group_id) is not None, "an answer")  # noqa: B023
            # What was sent last may have been stored without an answer.
            assert caller.committed(committer.group_id) in (committer.acked, committer.acked + 1)
        newest = offsets_in_the_log(cluster)
        assert all(newest[each.group_id] in (each.acked, each.acked + 1) for each in committers)


def have_moved(committers: list[Committer], before: dict[str, int]) -> bool:
    return all(each.acked >= before[each.group_id] + COMMITS_AWAITED for each in committers)


def offsets_in_the_log(cluster: Cluster) -> dict[str, int]:
    """The last offset of each group, as Kafka's decoder shows the records of `__consumer_offsets`."""
    newest: dict[str, int] = {}
    with Consumer(cluster) as consumer:
        consumer.seek_to_beginning(consumer.assign_all(GROUP_METADATA_TOPIC))
        while records := consumer.poll(1_000):
            for record in records:
                key, payload = offsets_decoder(record.offset, record.key, record.value)
                found = json.loads(payload or "{}")["data"]
                newest[json.loads(key or "{}")["data"]["group"]] = found["offset"]
    return newest
