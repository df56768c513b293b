"""Markers on their way to leaders that do not answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.replication import cadence
from stratalog.replication.coordinator.runtime.remote_appends import RemoteAppends
from stratalog.replication.coordinator.shard.shard import RemoteAppend, RemoteAppended
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.storage.errors import BrokerNotAvailableError, NotLeaderOrFollowerError, RequestTimedOutError
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.transactions import EndMarker, marker_batch

PLACE = TopicPartition("out", 0)
MARKER = RemoteAppend(PLACE, marker_batch(7, 0, EndMarker(True, 3), 1_000, 2), "context")


class Leader:
    """Keeps what it is asked, and says nothing."""

    def __init__(self) -> None:
        self.requests: list[ProduceRequest] = []
        self.completions: list[Callable[[ProduceResponse], None]] = []

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        self.requests.append(request)
        self.completions.append(complete)


class Sent:
    """One marker on its way at 0 ms, led by broker 2 under epoch 5."""

    def __init__(self) -> None:
        self.leader, self.other = Leader(), Leader()
        self.image = ClusterImage()
        self.lead(5)
        self.outcomes: list[RemoteAppended] = []
        self.now_ms = 0
        self.appends = RemoteAppends(
            lambda: self.image,
            {2: self.leader, 3: self.other},
            lambda work: work(self.now_ms),
            lambda _shard, outcome, _now_ms: self.outcomes.append(outcome),
        )
        self.appends.perform(None, MARKER, 0)  # type: ignore[arg-type]  # the shard is only told

    def lead(self, epoch: int, leader: int = 2) -> None:
        """Broker 2 leads under this epoch."""
        self.image = self.image.fold(PartitionRecord("out", 0, (2, 3), leader, epoch, (2, 3), 1, 1))


@pytest.mark.parametrize("leader", [2, 3, NO_LEADER])
def test_a_leader_that_is_none_any_more_is_not_waited_for(leader: int) -> None:
    """It died and another one leads, or nobody; or it restarted, and knows nothing of what it was sent."""
    sent = Sent()
    sent.appends.expire(1)
    assert sent.outcomes == []
    sent.lead(6, leader)
    sent.appends.expire(2)
    sent.leader.completions[0](ProduceResponse(IdentifiedPartition("id", PLACE)))
    (outcome,) = sent.outcomes
    assert isinstance(outcome.error, NotLeaderOrFollowerError)
    assert str(outcome.error) == "out-0: sent under leader epoch 5, which is 6 by now"


def test_a_partition_that_is_gone_is_not_waited_for() -> None:
    sent = Sent()
    sent.image = ClusterImage()
    sent.appends.expire(1)
    assert [type(outcome.error) for outcome in sent.outcomes] == [NotLeaderOrFollowerError]


def test_what_is_sent_again_goes_to_the_new_leader_and_is_waited_for_anew() -> None:
    sent = Sent()
    sent.lead(6, 3)
    sent.appends.expire(9_000)
    sent.appends.perform(None, MARKER, 9_100)  # type: ignore[arg-type]
    assert (len(sent.leader.completions), len(sent.other.completions)) == (1, 1)
    sent.appends.expire(cadence.REMOTE_APPEND.ms)
    assert (len(sent.outcomes), sent.appends.next_deadline_ms) == (1, 9_100 + cadence.REMOTE_APPEND.ms)
    sent.other.completions[0](ProduceResponse(IdentifiedPartition("id", PLACE)))
    assert [outcome.error for outcome in sent.outcomes[1:]] == [None]


def test_a_leader_whose_connection_broke_says_so_by_its_answer() -> None:
    sent = Sent()
    error = BrokerNotAvailableError("broker 2: the connection ended")
    sent.leader.completions[0](ProduceResponse(IdentifiedPartition("id", PLACE), error=error))
    assert sent.outcomes == [RemoteAppended(PLACE, "context", error)]


def test_a_leader_that_is_silent_is_waited_for_up_to_the_time_out() -> None:
    sent = Sent()
    sent.appends.expire(cadence.REMOTE_APPEND.ms - 1)
    assert sent.outcomes == []
    assert sent.appends.next_deadline_ms == cadence.REMOTE_APPEND.ms
    sent.appends.expire(cadence.REMOTE_APPEND.ms)
    assert [type(outcome.error) for outcome in sent.outcomes] == [RequestTimedOutError]


def test_the_leader_s_answer_comes_back_with_its_context() -> None:
    sent = Sent()
    sent.leader.completions[0](ProduceResponse(IdentifiedPartition("id", PLACE)))
    assert sent.outcomes == [RemoteAppended(PLACE, "context", None)]
    assert sent.appends.next_deadline_ms is None


def test_a_marker_is_for_the_leader_epoch_in_which_it_is_sent() -> None:
    """In a later one the same leader may find it in its queue, when the producer has begun its next transaction."""
    sent = Sent()
    assert [request.expected_leader_epoch for request in sent.leader.requests] == [5]
