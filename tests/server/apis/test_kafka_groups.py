"""Groups by Kafka's requests: every version reaches the coordinator, and answers come back as clients know them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stratalog.replication.coordinator.groups.shard import group_shard
from stratalog.replication.coordinator.transactions.shard import TransactionShard
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from stratalog.server.request.offset_commits import offset_pieces
from stratalog.wire.api_keys import ApiKey
from tests.clients.coordinating_cluster import CoordinatingCluster
from tests.clients.kafka_client import KafkaClient, code

GROUP = CoordinatorType.GROUP
TIMES = {"session_timeout": 30_000, "rebalance_timeout": 30_000}


@pytest.fixture
def cluster() -> CoordinatingCluster:
    made = CoordinatingCluster({GROUP: group_shard})
    made.create_topic("t", 2)
    made.create_topic(GROUP.topic, 2)
    return made


def commit(
    client: KafkaClient, offset: int, *, version: int = 9, topic: str = "t", group: str = "g", **fields: Any
) -> Any:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
    named = fields.pop("named", {"name": topic})
    values = {"group_id": group, "topics": [{**named, "partitions": [partition]}], **fields}
    return client.ask(ApiKey.OFFSET_COMMIT, version, values).topics[0]


def committed(client: KafkaClient, group: str = "g") -> list[tuple[str, int, int]]:
    answer = client.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": group, "topics": None}]})
    (found,) = answer.groups
    assert code(found) == 0
    return [(t.name, p.partition_index, p.committed_offset) for t in found.topics for p in t.partitions]


# -- FindCoordinator -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found_with_its_address(client: KafkaClient, version: int) -> None:
    values = {"coordinator_keys": ["g", "h", "g"]} if version >= 4 else {"key": "g"}
    answer = client.ask(ApiKey.FIND_COORDINATOR, version, values)
    found = answer.coordinators if version >= 4 else [answer]
    assert {(code(each), each.node_id, each.host, each.port) for each in found} == {(0, 1, "b1.example", 9091)}
    if version >= 4:
        assert [each.key for each in found] == ["g", "h", "g"]


def test_without_its_topic_there_is_no_coordinator_yet(client: KafkaClient) -> None:
    answer = client.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "tx", "key_type": 1})
    assert (code(answer), answer.node_id, answer.port) == (15, -1, -1)
    assert answer.error_message


# -- members -------------------------------------------------------------------------------------------------


def join(client: KafkaClient, version: int, member_id: str = "", group: str = "g") -> Any:
    protocols = [{"name": "range", "metadata": b"\x00\x00"}]
    values = {"group_id": group, **TIMES, "member_id": member_id, "protocol_type": "consumer", "protocols": protocols}
    if version == 0:
        del values["rebalance_timeout"]
    return client.asked(ApiKey.JOIN_GROUP, version, values)


def joined(client: KafkaClient, cluster: CoordinatingCluster, version: int, group: str = "g") -> Any:
    """The one member of a new group. Its first rebalance begins after `group.initial.rebalance.delay.ms`."""
    member_id = ""
    if version >= 4:
        refused = join(client, version, group=group)()
        assert (code(refused), refused.member_id != "") == (79, True)
        member_id = refused.member_id
    waiting = join(client, version, member_id, group)
    while not waiting.is_there.wait(0.05):
        cluster.expire()
    return waiting()


@pytest.mark.parametrize("version", [0, 3, 4, 6, 9])
def test_a_member_joins_syncs_lives_and_leaves(client: KafkaClient, cluster: CoordinatingCluster, version: int) -> None:
    member = joined(client, cluster, version)
    assert (code(member), member.generation_id, member.protocol_name) == (0, 1, "range")
    assert member.leader == member.member_id == member.members[0].member_id
    identity = {"group_id": "g", "generation_id": 1, "member_id": member.member_id}
    assignments = [{"member_id": member.member_id, "assignment": b"mine"}]
    sync = client.ask(ApiKey.SYNC_GROUP, min(version, 5), {**identity, "assignments": assignments})
    assert (code(sync), sync.assignment) == (0, b"mine")
    for beat in range(5):
        assert code(client.ask(ApiKey.HEARTBEAT, beat, identity)) == 0
    assert code(client.ask(ApiKey.HEARTBEAT, 4, {**identity, "generation_id": 7})) == 22
    (described,) = client.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g"]}).groups
    assert (described.group_state, described.protocol_data, len(described.members)) == ("Stable", "range", 1)
    assert described.members[0].client_id == "test"
    assert described.members[0].member_assignment == b"mine"
    assert code(commit(client, 5, generation_id_or_member_epoch=1, member_id=member.member_id).partitions[0]) == 0
    assert code(commit(client, 5, generation_id_or_member_epoch=0, member_id=member.member_id).partitions[0]) == 22
    leave_version = min(version, 5)
    named = {"member_id": member.member_id}
    values = {"group_id": "g", **({"members": [named]} if leave_version >= 3 else named)}
    assert code(client.ask(ApiKey.LEAVE_GROUP, leave_version, values)) == 0
    assert code(client.ask(ApiKey.HEARTBEAT, 4, identity)) == 25
    gone = client.ask(ApiKey.LEAVE_GROUP, leave_version, values)
    assert code(gone.members[0] if leave_version >= 3 else gone) == 25


def test_an_empty_protocol_name_was_no_null_before_version_7(client: KafkaClient) -> None:
    refused = join(client, 5, "nobody")()
    assert (code(refused), refused.protocol_name) == (25, "")
    assert join(client, 7, "nobody")().protocol_name is None


# -- offsets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed(client: KafkaClient, cluster: CoordinatingCluster, version: int) -> None:
    topic_id = cluster.metadata.image.topic_ids["t"]
    named = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    told = commit(client, 7, version=version, named=named)
    assert code(told.partitions[0]) == 0
    assert (told.topic_id == topic_id) if version >= 10 else (told.name == "t")
    assert committed(client) == [("t", 0, 7)]


@pytest.mark.parametrize("version", range(1, 11))
def test_committed_offsets_are_fetched(client: KafkaClient, cluster: CoordinatingCluster, version: int) -> None:
    commit(client, 7)
    topic_id = cluster.metadata.image.topic_ids["t"]
    topic = {**({"topic_id": topic_id} if version >= 10 else {"name": "t"}), "partition_indexes": [0, 1]}
    group = {"group_id": "g", "topics": [topic]}
    answer = client.ask(ApiKey.OFFSET_FETCH, version, {"groups": [group]} if version >= 8 else group)
    found = answer.groups[0] if version >= 8 else answer
    assert [(p.committed_offset, p.metadata, code(p)) for p in found.topics[0].partitions] == [
        (7, "note", 0), (-1, "", 0),
    ]  # fmt: skip


def test_each_group_is_fetched_by_itself(client: KafkaClient) -> None:
    for number, group in enumerate(("g", "h", "i")):
        commit(client, number, group=group)
    groups = [{"group_id": group, "topics": None} for group in ("i", "nobody", "g")]
    answer = client.ask(ApiKey.OFFSET_FETCH, 8, {"groups": groups})
    assert [(g.group_id, [p.committed_offset for t in g.topics for p in t.partitions]) for g in answer.groups] == [
        ("i", [2]), ("nobody", []), ("g", [0]),
    ]  # fmt: skip
    assert client.ask(ApiKey.OFFSET_FETCH, 8, {"groups": []}).groups == ()


@pytest.mark.parametrize(("version", "error"), [(8, 22), (9, 69)])
def test_a_member_of_no_group_is_told_as_its_client_knows_it(client: KafkaClient, version: int, error: int) -> None:
    told = commit(client, 3, version=version, generation_id_or_member_epoch=4, member_id="m")
    assert code(told.partitions[0]) == error


# -- administration ------------------------------------------------------------------------------------------


def test_groups_are_listed_by_state_and_type(client: KafkaClient, cluster: CoordinatingCluster) -> None:
    commit(client, 1, group="quiet")
    joined(client, cluster, 5, "busy")
    everything = client.ask(ApiKey.LIST_GROUPS, 5, {})
    assert {(g.group_id, g.group_type) for g in everything.groups} == {("quiet", "classic"), ("busy", "classic")}
    empty = client.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": ["Empty"]})
    assert [(g.group_id, g.group_state) for g in empty.groups] == [("quiet", "Empty")]
    assert {g.group_id for g in client.ask(ApiKey.LIST_GROUPS, 0).groups} == {"quiet", "busy"}
    assert client.ask(ApiKey.LIST_GROUPS, 5, broker=2).groups == ()


@pytest.mark.parametrize(("version", "error"), [(5, 0), (6, 69)])
def test_a_group_that_is_not_there_is_dead(client: KafkaClient, version: int, error: int) -> None:
    (described,) = client.ask(ApiKey.DESCRIBE_GROUPS, version, {"groups": ["nobody"]}).groups
    assert (described.group_state, code(described)) == ("Dead", error)


def test_what_one_may_do_with_a_group_is_told_if_asked_for(client: KafkaClient) -> None:
    commit(client, 1)
    for asked, told in ((True, 3_400), (False, -(2**31))):
        values = {"groups": ["g"], "include_authorized_operations": asked}
        assert client.ask(ApiKey.DESCRIBE_GROUPS, 5, values).groups[0].authorized_operations == told


@pytest.mark.parametrize(("version", "told"), [(5, 3_400), (6, -(2**31))])
def test_what_one_may_do_with_a_group_that_is_not_there_goes_with_its_error(
    client: KafkaClient, version: int, told: int
) -> None:
    """Kafka says it where it says no error, which version 6 does."""
    values = {"groups": ["nobody"], "include_authorized_operations": True}
    assert client.ask(ApiKey.DESCRIBE_GROUPS, version, values).groups[0].authorized_operations == told


def test_groups_are_deleted_one_by_one(client: KafkaClient, cluster: CoordinatingCluster) -> None:
    commit(client, 1, group="quiet")
    joined(client, cluster, 5, "busy")
    answer = client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["quiet", "busy", "nobody"]})
    assert [(r.group_id, code(r)) for r in answer.results] == [("quiet", 0), ("busy", 68), ("nobody", 69)]
    assert client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": []}).results == ()


# -- many partitions -----------------------------------------------------------------------------------------


def test_a_commit_of_thousands_of_partitions_is_made_in_pieces(client: KafkaClient) -> None:
    topics = tuple(
        OffsetCommitRequestTopic(name, tuple(OffsetCommitRequestPartition(number, number) for number in range(count)))
        for name, count in (("a", 700), ("b", 3), ("c", 1_000), ("empty", 0))
    )
    pieces = offset_pieces(topics)
    assert [sum(len(topic.partitions) for topic in piece) for piece in pieces] == [500, 500, 500, 203]
    assert [(topic.name, each) for piece in pieces for topic in piece for each in topic.partitions] == [
        (topic.name, each) for topic in topics for each in topic.partitions
    ]
    partitions = [{"partition_index": 0, "committed_offset": 7}] * 600
    answer = client.ask(ApiKey.OFFSET_COMMIT, 8, {"group_id": "g", "topics": [{"name": "t", "partitions": partitions}]})
    (topic,) = answer.topics
    assert [code(each) for each in topic.partitions] == [0] * 600
    assert committed(client) == [("t", 0, 7)]


def test_a_fetch_of_thousands_of_partitions_is_made_in_pieces_and_answered_as_one(client: KafkaClient) -> None:
    commit = {"partition_index": 0, "committed_offset": 7}
    client.ask(ApiKey.OFFSET_COMMIT, 8, {"group_id": "g", "topics": [{"name": "t", "partitions": [commit]}]})
    topics = [
        {"name": "a", "partition_indexes": list(range(700))},
        {"name": "none", "partition_indexes": []},
        {"name": "t", "partition_indexes": [0, 1]},
        {"name": "b", "partition_indexes": list(range(1_100))},
    ]
    (group,) = client.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": topics}]}).groups
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in group.topics] == [
        (topic["name"], topic["partition_indexes"]) for topic in topics
    ]
    found = {(topic.name, each.partition_index): each.committed_offset for topic in group.topics
             for each in topic.partitions}  # fmt: skip
    assert [key for key, offset in found.items() if offset != -1] == [("t", 0)]
    (group,) = client.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": topics}]}, broker=2).groups
    assert code(group) == 16


def test_a_topic_that_a_commit_names_again_and_again_is_answered_once(client: KafkaClient) -> None:
    """With each of its partitions once: those that do not exist were repeated for each place where it is named."""
    partitions = [{"partition_index": number, "committed_offset": 7} for number in (0, 5, 6)]
    answer = client.ask(
        ApiKey.OFFSET_COMMIT, 8, {"group_id": "g", "topics": [{"name": "t", "partitions": partitions}] * 50}
    )
    (topic,) = answer.topics
    assert Counter(code(each) for each in topic.partitions) == {0: 50, 3: 100}


def test_a_transactions_commit_of_thousands_of_partitions_is_made_in_pieces() -> None:
    made = CoordinatingCluster({GROUP: group_shard, CoordinatorType.TRANSACTION: TransactionShard.at})
    made.create_topic("t", 2)
    for kind in (GROUP, CoordinatorType.TRANSACTION):
        made.create_topic(kind.topic, 2)
    with KafkaClient(made, stores=made.stores) as client:
        begun = client.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": "x", "transaction_timeout": 60_000})
        producer = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        partitions = [{"partition_index": number % 3, "committed_offset": 7} for number in range(1_500)]
        asked = {"transactional_id": "x", "group_id": "g", **producer}
        assert code(client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, asked)) == 0
        answer = client.ask(
            ApiKey.TXN_OFFSET_COMMIT, 3, {**asked, "topics": [{"name": "t", "partitions": partitions}] * 2}
        )
        (topic,) = answer.topics
        assert Counter(code(each) for each in topic.partitions) == {0: 2_000, 3: 1_000}
        assert committed(client) == []
        ended = client.ask(ApiKey.END_TXN, 3, {"transactional_id": "x", **producer, "committed": True})
        assert code(ended) == 0
