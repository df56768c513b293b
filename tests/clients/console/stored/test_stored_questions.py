"""Questions that storage alone answers, asked of a cluster with a past."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stratalog import TopicPartition
from stratalog.clients.console.catalogue import CHANGES, QUESTIONS
from stratalog.clients.console.changes.change import PreviewLine
from stratalog.clients.console.over_time import lags
from stratalog.clients.console.question import plain
from stratalog.clients.console.stored import as_of, erasure, files, record_way, who_led
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.storage import errors
from stratalog.storage.metering.calls import calls_of
from tests.clients.console.console_world import HIDDEN, ORDERS, World, running_world
from tests.waiting import wait_until

OWN = [question.name for module in (as_of, erasure, files, record_way, who_led, lags) for question in module.QUESTIONS]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running_world() as made:
        yield made


def asked(world: World, name: str, *, is_alice: bool = False, **given: object) -> Any:
    asker = world.asker(is_alice=is_alice)
    return QUESTIONS[name].ask(asker, {key: str(value) for key, value in given.items()})


def way(world: World, offset: int, **who: bool) -> Any:
    return asked(world, "record_way", topic="orders", partition=0, offset=offset, **who)


def test_a_record_is_the_same_on_all_replicas_and_its_commits_are_known(world: World) -> None:
    found = way(world, 2)
    assert (found.agrees, found.is_committed, found.transaction) == (True, True, None)
    assert {copy.state for copy in found.copies} == {"same"}
    assert len({copy.checksum for copy in found.copies}) == 1
    assert sorted(copy.broker_id for copy in found.copies) == [1, 2, 3]
    assert (found.origin.sequence, found.origin.leader_epoch) == (2, 0)
    assert found.origin.batch_base_offset <= 2
    assert (found.leader.broker_id, found.leader.leader_epoch) == (world.first_leader, 0)
    arrivals = {copy.broker_id: copy.arrived for copy in found.copies}
    assert {number: each.operation for number, each in arrivals.items()} == {
        number: "WRITE" if number == world.first_leader else "COPY" for number in (1, 2, 3)
    }
    for copy in found.copies:  # the erasure rewrote the file since
        assert copy.written.version > copy.arrived.version
        assert copy.file.path.startswith("segment=")


@pytest.mark.parametrize(
    ("offset", "outcome", "first", "marker", "is_control"),
    [(5, "aborted", 5, 6, False), (6, "aborted", None, 6, True), (7, "committed", 7, 8, False)],
)
def test_a_record_has_the_outcome_of_its_transaction(
    world: World, offset: int, outcome: str, first: int | None, marker: int, is_control: bool
) -> None:
    found = way(world, offset)
    seen = found.transaction
    assert (seen.outcome, seen.marker_offset, found.origin.is_control) == (outcome, marker, is_control)
    assert seen.first_offset in (first, None)
    assert seen.transactional_id == f"{HIDDEN}-tx"


def test_an_erased_record_is_absent_with_the_reason(world: World) -> None:
    found = way(world, 1)
    assert ({copy.state for copy in found.copies}, found.origin, found.agrees) == ({"absent"}, None, True)


def test_an_offset_that_no_replica_has_is_refused(world: World) -> None:
    with pytest.raises(errors.OffsetOutOfRangeError, match=r"orders-0: offset 99 is outside \[0, 12\)"):
        way(world, 99)


def test_the_timeline_has_the_failover_and_the_records_beside_it(world: World) -> None:
    found = asked(world, "who_led", topic="orders", partition=0)
    assert [each.what for each in found.events][:2] == [("created",), ("failover", "ISR shrunk")]
    (failover,) = found.failovers
    assert (failover.from_leader, failover.start_offset, failover.leader_epoch) == (world.first_leader, 9, 1)
    assert [each.offset for each in failover.records] == [6, 7, 8, 9, 10, 11]
    assert all(each.is_acknowledged for each in failover.records)
    assert failover.silent_ms == failover.first_after_ms - failover.last_before_ms
    assert {each.partition for each in asked(world, "who_led", topic="orders").events} == {0, 1}


def test_events_are_limited_and_bounded_in_time(world: World) -> None:
    assert asked(world, "who_led", topic="orders", limit=1).is_cut
    assert len(asked(world, "who_led", topic="orders", until=world.before_ms).events) == 2


def test_a_topic_is_shown_as_it_was(world: World) -> None:
    found = asked(world, "topic_as_of", topic="orders", at=world.before_ms)
    assert (found.existed, found.configs, found.unknown_configs) == (True, {}, ())
    assert found.partitions[0].leader == world.first_leader
    assert found.partitions[0].end_offset == 9
    changes = {(each.what, each.name): (each.then, each.now) for each in found.differences}
    assert changes["config", "retention.ms"] == ("-", "100000")
    assert changes["leader", "orders-0"][0] == str(world.first_leader)


def test_a_topic_was_not_there_before_it_was_created(world: World) -> None:
    found = asked(world, "topic_as_of", topic="orders", at=1)
    assert (found.existed, found.partitions) == (False, ())
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="neither the metadata log nor its history"):
        asked(world, "topic_as_of", topic="never", at=1)


def test_the_future_is_refused(world: World) -> None:
    with pytest.raises(errors.InvalidRequestError, match="the past"):
        asked(world, "cluster_as_of", at=1 << 50)


def test_a_group_is_shown_as_it_was_measured(world: World) -> None:
    found = asked(world, "group_as_of", group="billing", at=world.asker().now_ms)
    assert found.measured_ms is not None
    assert {each.topic for each in found.partitions} == {"orders", f"{HIDDEN}-log"}
    (first,) = (each for each in found.partitions if (each.topic, each.partition) == ("orders", 0))
    assert first.committed_now is not None
    assert asked(world, "group_as_of", group="billing", at=1_000).measured_ms is None


def test_the_cluster_is_shown_as_it_was(world: World) -> None:
    found = asked(world, "cluster_as_of", at=world.before_ms)
    assert [each.is_running for each in found.brokers] == [True, True, True]
    assert (found.offline, found.under_replicated) == (0, 0)
    changed = {(each.what, each.name) for each in found.differences}
    assert {("broker", str(world.first_leader)), ("leader", "orders-0")} <= changed
    assert asked(world, "cluster_as_of", at=1).topics == 0


def test_an_erasure_is_proved_on_every_replica(world: World) -> None:
    requests = asked(world, "erasures", topic="orders").requests
    assert [each.erase_id for each in requests] == [world.erase_id]
    assert requests[0].requested_ms is not None
    proof = asked(world, "erasure", topic="orders", erase_id=world.erase_id)
    assert (proof.is_erased, proof.replicas_done, proof.records_erased_max) == (True, 6, 2)
    assert {each.records_left for each in proof.replicas} == {0}
    with pytest.raises(errors.InvalidRequestError, match="has no erasure 9"):
        asked(world, "erasure", topic="orders", erase_id=9)


def test_files_are_counted_and_listed(world: World) -> None:
    objects = world.opened.view.stores.objects(world.cluster.root)
    calls_of(objects.url).count("put", "x", 7)  # stores in memory do not count
    found = asked(world, "files", topic="orders", partition=0)
    assert len(found.replicas) == 3
    live = [each for each in found.replicas if each.is_leader]
    assert live[0].live_files == len(found.files) > 0
    assert live[0].live_bytes == sum(each.size_bytes for each in found.files)
    assert live[0].dead_files == len(found.dead) > 0, "the erasure's old file waits for its deletion"
    assert [each.version for each in found.commits] == list(range(live[0].version, -1, -1))
    assert {"CREATE TABLE", "WRITE"} & {each.operation for each in found.commits}
    assert (found.calls[0].root, found.calls[0].calls, found.calls[0].written_bytes) == (
        world.cluster.root,
        {"put": 1},
        7,
    )
    whole = asked(world, "files", topic="orders")
    assert (len(whole.replicas), whole.files, whole.commits) == (6, (), ())


def test_rates_count_each_record_when_it_came(world: World) -> None:
    found = asked(world, "rates", topic="orders")
    records = sum(each.records_per_s * (each.until_ms - each.at_ms) / 1_000 for each in found.points)
    # 12 were appended; a file that an erasure rewrote begins and ends with what it left, wherever batches ended
    left = [
        world.opened.view.records.read_from_log(
            TopicPartition("orders", number), lambda log: sum(e.end_offset - e.start_offset for e in log.files), 0
        )
        for number in (0, 1)
    ]
    assert records == pytest.approx(sum(left))
    assert 10 <= sum(left) <= 12
    assert sum(each.bytes_per_s for each in found.points) > 0
    assert (found.read, found.partitions, found.hidden, found.undated) == (2, 2, "", 0)
    cluster = asked(world, "rates", window="7d")
    assert {each.topic for each in cluster.topics} == {"orders", f"{HIDDEN}-log"}
    assert [each.records for each in cluster.topics if each.topic == "orders"] == [pytest.approx(sum(left))]
    assert any(each.read_per_s is not None for each in cluster.points)


def test_a_group_is_measured_over_time_in_each_topic(world: World) -> None:
    found = asked(world, "lag_over_time", group="billing")
    assert {each.topic for each in found.topics} == {"orders", f"{HIDDEN}-log"}
    assert any(each.lag is not None for each in found.points)
    seen = asked(world, "lag_over_time", is_alice=True, group="billing")
    assert ([each.topic for each in seen.topics], seen.hidden) == (["orders"], 1)
    assert asked(world, "lag_over_time", group="absent").topics == []


# -- access ---------------------------------------------------------------------------------------------------------

ABOUT_A_TOPIC = {
    "record_way": {"partition": 0, "offset": 0},
    "who_led": {},
    "topic_as_of": {"at": 1},
    "erasures": {},
    "erasure": {"erase_id": 1},
    "files": {},
}


@pytest.mark.parametrize("name", ABOUT_A_TOPIC)
def test_a_hidden_topic_is_refused_as_one_that_is_not_there(world: World, name: str) -> None:
    texts = []
    for topic in (f"{HIDDEN}-log", f"{HIDDEN}-not"):
        with pytest.raises(errors.TopicAuthorizationFailedError) as refused:
            asked(world, name, is_alice=True, topic=topic, **ABOUT_A_TOPIC[name])
        texts.append(str(refused.value).replace(topic, "TOPIC"))
    assert texts[0] == texts[1]


def test_a_hidden_group_is_refused(world: World) -> None:
    with pytest.raises(errors.GroupAuthorizationFailedError):
        asked(world, "group_as_of", is_alice=True, group=f"{HIDDEN}-group", at=1)


def test_no_answer_has_a_trace_of_what_is_hidden(world: World) -> None:
    now_ms = world.asker().now_ms
    given: dict[str, list[dict[str, object]]] = {
        "record_way": [{"topic": "orders", "partition": 0, "offset": offset} for offset in (0, 1, 5, 6, 7, 8, 9)],
        "who_led": [{"topic": "orders"}, {"topic": "orders", "partition": 0}],
        "topic_as_of": [{"topic": "orders", "at": at} for at in (1, world.before_ms, now_ms)],
        "group_as_of": [{"group": "billing", "at": at} for at in (1, world.before_ms, now_ms)],
        "cluster_as_of": [{"at": at} for at in (1, world.before_ms, now_ms)],
        "erasures": [{}, {"topic": "orders"}],
        "erasure": [{"topic": "orders", "erase_id": world.erase_id}],
        "files": [{"topic": "orders"}, {"topic": "orders", "partition": 0}],
        "lag_over_time": [{"group": "billing"}, {"group": "billing", "window": "7d"}],
    }
    assert set(given) == set(OWN)
    for name, cases in given.items():
        for case in cases:
            text = json.dumps(plain(asked(world, name, is_alice=True, **case)))
            assert HIDDEN not in text, (name, case)
            assert "77777" not in text, (name, case)
    assert HIDDEN not in json.dumps(plain(asked(world, "rates", is_alice=True)))
    assert HIDDEN in json.dumps(plain(asked(world, "rates")))
    everything = json.dumps(plain(asked(world, "group_as_of", group="billing", at=now_ms)))
    assert HIDDEN in everything, "the test would find nothing"


def test_brokers_and_calls_are_for_those_who_may_describe_the_cluster(world: World) -> None:
    found = asked(world, "cluster_as_of", is_alice=True, at=world.before_ms)
    assert (found.brokers, found.controller_id, found.topics) == ((), -1, 1)
    assert {each.what for each in found.differences} <= {"leader", "ISR", "replicas", "partition", "topic"}
    assert asked(world, "files", is_alice=True, topic="orders").calls == ()


@pytest.mark.parametrize("name", OWN)
def test_a_console_that_knows_brokers_alone_says_what_is_missing(world: World, name: str) -> None:
    known = {"topic": "orders", "partition": "0", "offset": "0", "group": "billing", "at": "1", "erase_id": "1"}
    given = {each: known[each] for each in QUESTIONS[name].parameters if each in known}
    asker = world.asker()
    served = OpenedCluster(Served(), asker.cluster.admin, {})  # type: ignore[arg-type]
    with pytest.raises(errors.StorageNotKnownError, match="start it with --root"):
        QUESTIONS[name].ask(type(asker)(served, asker.principal, None, asker.now_ms), given)


class Served:
    """Stands for the view of a cluster that is known by its brokers' addresses."""


def test_a_partition_is_named_as_in_kafka() -> None:
    assert str(TopicPartition("orders", 0)) == str(ORDERS)


# -- moves: the last tests, since they change the cluster -----------------------------------------------------------


def change(world: World, name: str, **given: object) -> str:
    return CHANGES[name].performed(world.asker(), {key: str(value) for key, value in given.items()})


def preview_of(world: World, name: str, **given: object) -> Any:
    return CHANGES[name].previewed(world.asker(), {key: str(value) for key, value in given.items()})


def test_a_partition_moves_as_its_preview_says_and_its_first_replica_leads(world: World) -> None:
    def state() -> Any:
        return world.opened.admin.describe_topics(["orders"])["orders"].partitions[1]

    before = state()
    other = next(each for each in before.replicas if each != before.leader)
    given = {"topic": "orders", "partition": 1, "brokers": f"{other},{before.leader}"}
    preview = preview_of(world, "move_partitions", **given)
    now = ", ".join(map(str, before.replicas))
    assert preview.lines == [PreviewLine("orders-1", now, f"{other}, {before.leader}")]
    assert any("number of replicas changes" in each for each in preview.warnings)
    change(world, "move_partitions", **given)
    wait_until(lambda: state().replicas == (other, before.leader), "a dropped replica")
    if state().leader != other:
        assert PreviewLine("leader of orders-1", str(before.leader), str(other)) in (
            preview_of(world, "elect_preferred_leaders", topic="orders").lines
        )
    change(world, "elect_preferred_leaders", topic="orders")
    wait_until(lambda: state().leader == other, "the preferred leader")


def test_a_move_is_planned_over_brokers_and_limited(world: World) -> None:
    given = {"topic": f"{HIDDEN}-log", "brokers": "1,2", "throttle": 1_000_000}
    with pytest.raises(errors.InvalidReplicationFactorError):
        preview_of(world, "move_partitions", **given)
    given |= {"partition": 0}
    limited = preview_of(world, "move_partitions", **given).lines[-1]
    assert limited == PreviewLine("limit of each broker", "no limit", "1000000 bytes/s")
    change(world, "move_partitions", **given)
    assert preview_of(world, "limit_moves").lines[0].before == "1000000 bytes/s"
    change(world, "limit_moves")
    assert preview_of(world, "limit_moves").lines == [PreviewLine("limit of each broker", "no limit", "no limit")]
    with pytest.raises(errors.NoReassignmentInProgressError):
        change(world, "cancel_moves")
    with pytest.raises(errors.InvalidReplicaAssignmentError, match="brokers 9 do not run"):
        preview_of(world, "move_partitions", topic="orders", brokers="9")
