"""Deleting records on the leader: the new log start, the replicas that are waited for, the answers (KIP-107)."""

from __future__ import annotations

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.plan import Need
from stratalog.replication.follower.replica import FollowedReplica
from stratalog.replication.leader.partition import Partition
from stratalog.replication.metadata.records import ConfigRecord, FenceBrokerRecord
from stratalog.replication.progress.progress import UNKNOWN, ReplicaProgress
from stratalog.replication.replica.upkeep_rounds import limits_of
from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.storage.errors import BrokerNotAvailableError, StoreUnavailableError
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.upkeep.chore import UpkeepLimits
from tests.replication.broker.test_broker import CONFIG, FOLLOWER, in_memory, tick
from tests.replication.follower.test_replica import Pair, run
from tests.replication.memory_stores import commit, led_by
from tests.storage.logs import values

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Asked:
    """A leader of five committed records, and the answers to what it is asked."""

    def __init__(self, config: BrokerConfig = CONFIG) -> None:
        self.running, self.stores = in_memory(config)
        self.topic_id = ""
        """In requests; empty: that of the topic."""
        self.responses: list[DeleteRecordsResponse] = []
        self.objects = self.stores.objects("broker-1")
        for value in "abcde":
            self.running.produce(value)
        self.running.settle()
        self.running.follow(5)
        self.go_on()

    @property
    def log_start(self) -> int:
        """As the leader publishes it."""
        return self.running.published(self.objects).log_start_offset

    def go_on(self) -> None:
        tick(self.stores)
        self.running.settle()

    def ask(self, offset: int, *, of: TopicPartition = T0, timeout_ms: int = 60_000) -> None:
        named = IdentifiedPartition(self.topic_id or self.running.metadata.image.topic_ids["t"], of)
        request = DeleteRecordsRequest({named: offset}, timeout_ms)
        self.running.broker.calls.delete_records(request, self.responses.append)
        self.go_on()

    def answer(self) -> DeletedRecords | str | None:
        """The answer, or its error's name; None without one. It comes once."""
        if not self.responses:
            return None
        ((answer,),) = (each.values() for each in self.responses)
        return answer if answer.error is None else answer.error.name


def test_a_request_to_a_deleted_topic_deletes_nothing_of_the_next_one_of_that_name() -> None:
    asked = Asked()
    asked.topic_id = "of the topic before"
    asked.ask(-1)
    assert (asked.answer(), asked.log_start) == ("UNKNOWN_TOPIC_ID", 0)


def test_no_object_is_written_for_a_request_or_its_answer() -> None:
    asked = Asked()
    asked.running.follow(5, log_start=3, version=6)
    asked.ask(3)
    assert asked.answer() == DeletedRecords(3)
    assert asked.objects.list("inbox/") == []


def test_the_leader_answers_once_its_followers_logs_start_there_too() -> None:
    asked = Asked()
    asked.ask(3)
    assert (asked.log_start, asked.answer()) == (3, None)
    asked.running.follow(5, log_start=2, version=6)
    asked.go_on()
    assert asked.answer() is None
    asked.running.follow(5, log_start=3, version=7)
    asked.go_on()
    assert asked.answer() == DeletedRecords(3)
    assert values(asked.running.broker.leaders[T0].log) == "d e"


def test_a_follower_may_have_gone_further_by_itself() -> None:
    asked = Asked()
    asked.running.follow(5, log_start=4, version=6)
    asked.ask(2)
    assert asked.answer() == DeletedRecords(2), "the least log start of all, the leader's here"


def test_a_dead_broker_is_not_waited_for() -> None:
    asked = Asked()
    asked.ask(5)
    assert asked.answer() is None
    commit(asked.running.metadata, FenceBrokerRecord(FOLLOWER, 20))
    asked.go_on()
    asked.go_on()
    assert asked.answer() == DeletedRecords(5)


def test_minus_one_deletes_up_to_the_high_watermark() -> None:
    asked = Asked()
    asked.running.produce("f")
    asked.ask(-1)
    asked.running.follow(6, log_start=5, version=8)
    asked.go_on()
    assert (asked.answer(), asked.log_start) == (DeletedRecords(5), 5)


def test_what_is_deleted_already_costs_no_commit() -> None:
    asked = Asked()
    log = asked.running.broker.leaders[T0].log
    asked.running.follow(5, log_start=0, version=6)
    asked.go_on()
    version = log.version
    asked.ask(0)
    assert (asked.answer(), log.version) == (DeletedRecords(0), version)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        ({"offset": 6}, "OFFSET_OUT_OF_RANGE"),
        ({"offset": -2}, "OFFSET_OUT_OF_RANGE"),
        ({"offset": 1, "of": T1}, "NOT_LEADER_OR_FOLLOWER"),
        ({"offset": 1, "of": TopicPartition("__consumer_offsets", 0)}, "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_a_refused_request_moves_nothing(ask: dict[str, object], error: str) -> None:
    asked = Asked()
    asked.ask(**ask)  # type: ignore[arg-type]
    assert (asked.answer(), asked.log_start) == (error, 0)


def test_a_compacted_topic_refuses() -> None:
    asked = Asked()
    commit(asked.running.metadata, ConfigRecord("t", "cleanup.policy", "compact"))
    asked.go_on()
    asked.ask(3)
    assert (asked.answer(), asked.log_start) == ("POLICY_VIOLATION", 0)


def test_a_live_follower_that_does_not_follow_in_time_is_reported() -> None:
    asked = Asked()
    asked.ask(3, timeout_ms=1_000)
    assert asked.answer() is None
    asked.stores.clock.now_ms += 1_000
    asked.go_on()
    assert (asked.answer(), asked.log_start) == ("REQUEST_TIMED_OUT", 3), "it holds on the leader all the same"


def test_the_answer_waits_for_a_store_that_is_away_and_comes_once() -> None:
    asked = Asked()
    asked.running.follow(5, log_start=5, version=6)
    asked.stores.disk("broker-1").fault = lambda operation, _table, _detail: operation == "create"
    asked.ask(4)
    assert (asked.answer(), asked.log_start) == (None, 0)
    asked.stores.disk("broker-1").fault = None
    asked.go_on()
    assert (asked.answer(), asked.log_start) == (DeletedRecords(4), 4)


def test_the_low_watermark_is_the_least_start_of_live_replicas() -> None:
    partition = Partition(led_by(1, replicas=(1, 2, 3)), 1, 0, 0, 0)
    assert partition.low_watermark(8, {1, 2, 3}) == UNKNOWN
    for replica, start in ((2, 8), (3, 5)):
        partition.follower_progressed(replica, ReplicaProgress(T0, 0, 9, 1, log_start_offset=start), 0)
    assert partition.low_watermark(8, {1, 2, 3}) == 5
    assert partition.low_watermark(8, {1, 2}) == 8
    assert partition.low_watermark(4, {1}) == 4


def test_a_follower_adopts_a_log_start_that_moves_without_a_record() -> None:
    pair = Pair()
    leader = pair.wrote(1, "0: a b c")
    follower: FollowedReplica = pair.caught_up(0)
    leader.replace_files((), (), leader_epoch=0, operation="DELETE RECORDS", now_ms=0, data_change=True, log_start=2)
    published = ReplicaProgress(T0, 0, 3, leader.version, log_start_offset=2, topic_id="id")
    assert follower.need(published) is Need.COPY
    run(follower)
    assert follower.need(published) is Need.NOTHING
    assert (values(follower.own), follower.own.log_start_offset) == ("c", 2)
    version = follower.own.version
    run(follower)
    assert follower.own.version == version


def test_a_topics_retention_runs_on_its_leader_and_is_published() -> None:
    """`log.retention.check.interval.ms` says how often; the topic's config is altered while it runs."""
    config = {"stratalog.upkeep.interval.ms": 100, "log.retention.check.interval.ms": 5_000}
    asked = Asked(BrokerConfig.from_properties(config))
    commit(asked.running.metadata, ConfigRecord("t", "retention.bytes", "0"))
    asked.go_on()
    assert asked.log_start == 0
    for _ in range(5_000 // 200 + 1):
        asked.go_on()
    assert asked.log_start == 5
    assert values(asked.running.broker.leaders[T0].log) == ""


def test_the_check_interval_is_a_setting_of_the_cluster() -> None:
    assert limits_of(BrokerConfig()).retention_check_ms == 300_000
    config = BrokerConfig.from_properties({"log.retention.check.interval.ms": 7})
    assert limits_of(config, UpkeepLimits(keep_commits=3)) == UpkeepLimits(keep_commits=3, retention_check_ms=7)


def test_a_broker_that_stops_refuses_what_waits_and_what_comes_later() -> None:
    asked = Asked()
    asked.ask(3)
    assert asked.answer() is None
    asked.running.broker.stop(BrokerNotAvailableError("killed"))
    assert asked.answer() == "NOT_LEADER_OR_FOLLOWER"
    asked.ask(4)
    assert [answer.error.name for each in asked.responses for answer in each.values() if answer.error] == [
        "NOT_LEADER_OR_FOLLOWER"
    ] * 2


def test_a_new_log_start_is_answered_once_it_is_published_and_a_refusal_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client reads from there as soon as it has the answer, also when the broker's storage failed in between."""
    asked = Asked()
    asked.running.follow(5, log_start=5, version=6)

    def out_of_reach(path: str, _data: bytes) -> None:
        raise StoreUnavailableError(f"{path} is out of reach")

    with monkeypatch.context() as cut:
        cut.setattr(asked.objects, "put_register", out_of_reach)
        asked.ask(3)
        asked.go_on()
        assert (asked.answer(), asked.log_start) == (None, 0)
        asked.ask(9)
        assert asked.answer() == "OFFSET_OUT_OF_RANGE"
        asked.responses.clear()
    asked.go_on()
    assert (asked.answer(), asked.log_start) == (DeletedRecords(3), 3)


def test_a_request_wakes_the_loop_when_its_time_is_over() -> None:
    asked = Asked()
    asked.ask(3, timeout_ms=207)
    assert asked.answer() is None
    assert asked.running.broker.pause_ms() == 7, "200 ms have passed"
