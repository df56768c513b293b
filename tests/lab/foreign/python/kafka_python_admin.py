"""The admin client of kafka-python, call by call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    OffsetSpec,
    ResourcePattern,
    ResourceType,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError, TopicAlreadyExistsError

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.python import groups
from tests.lab.foreign.python.clients import KafkaPython
from tests.lab.foreign.python.records import read, topic_of
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

WAIT_S = 60
COUNT = 200
SCRAM = "SCRAM-SHA-512"


def with_admin(run: Callable[[KafkaAdminClient, Served], None]) -> Callable[[Served], None]:
    def call(served: Served) -> None:
        admin = KafkaAdminClient(bootstrap_servers=served.bootstrap)
        try:
            run(admin, served)
        finally:
            admin.close()

    return call


def topics(admin: KafkaAdminClient, served: Served) -> None:
    topic = fresh("topic")
    admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 3}}, wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 3}})
    admin.create_partitions({topic: 5})
    wait_until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5, f"5 partitions of {topic}", WAIT_S)
    partitions = admin.describe_topic_partitions([topic])["topics"][0]["partitions"]
    assert [len(each["replica_nodes"]) for each in partitions] == [3] * 5
    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics(), f"{topic} is gone", WAIT_S)


def configs(admin: KafkaAdminClient, served: Served) -> None:
    topic = topic_of(served, 1)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1234567"})])
    assert config(admin, topic, "retention.ms") == "1234567"
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "7200000"})], incremental=False)
    assert config(admin, topic, "segment.ms") == "7200000"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["segment.ms"])])
    assert config(admin, topic, "segment.ms") == "604800000"
    broker = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")], config_filter="all")
    assert "listeners" in broker["broker"]["1"]


def config(admin: KafkaAdminClient, topic: str, name: str) -> Any:
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return found["topic"][topic][name]["value"]


def groups_and_offsets(admin: KafkaAdminClient, served: Served) -> None:
    client, topic, group = KafkaPython(), topic_of(served, groups.PARTITIONS), fresh("group")
    partitions = [TopicPartition(topic, number) for number in range(groups.PARTITIONS)]
    groups.write(client, served, topic, 0)
    with client.reader(served.bootstrap, {"group.id": group, **groups.classic(client, "range")}) as reader:
        reader.subscribe(topic)
        read(reader, COUNT)
        reader.commit()
        found = admin.describe_groups([group])[group]
        assert (found["group_state"], len(found["members"])) == ("Stable", 1)
    wait_until(lambda: admin.describe_groups([group])[group]["group_state"] == "Empty", "an empty group", WAIT_S)
    assert group in {each["group_id"] for each in admin.list_groups()}
    assert offsets(admin, group) == dict.fromkeys(partitions, COUNT // groups.PARTITIONS)
    admin.alter_group_offsets(group, {each: OffsetAndMetadata(7, "", -1) for each in partitions})
    assert offsets(admin, group) == dict.fromkeys(partitions, 7)
    admin.reset_group_offsets(group, dict.fromkeys(partitions, OffsetSpec.LATEST))
    assert offsets(admin, group) == dict.fromkeys(partitions, COUNT // groups.PARTITIONS)
    admin.delete_group_offsets(group, partitions[:1])
    assert offsets(admin, group) == dict.fromkeys(partitions[1:], COUNT // groups.PARTITIONS)
    admin.delete_groups([group])
    assert group not in {each["group_id"] for each in admin.list_groups()}


def offsets(admin: KafkaAdminClient, group: str) -> dict[TopicPartition, int]:
    return {each: found.offset for each, found in admin.list_group_offsets(group)[group].items()}


def records_and_offsets(admin: KafkaAdminClient, served: Served) -> None:
    topic = topic_of(served, groups.PARTITIONS)
    groups.write(KafkaPython(), served, topic, 0)
    partition = TopicPartition(topic, 0)
    admin.delete_records({partition: 20})
    wait_until(lambda: listed(admin, partition, OffsetSpec.EARLIEST) == 20, "the log start offset", WAIT_S)
    assert listed(admin, partition, OffsetSpec.LATEST) == COUNT // groups.PARTITIONS


def listed(admin: KafkaAdminClient, partition: TopicPartition, spec: OffsetSpec) -> int:
    return admin.list_partition_offsets({partition: spec})[partition].offset


def acls(admin: KafkaAdminClient, served: Served) -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, fresh("topic"), ACLResourcePatternType.LITERAL)
    acl = ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    assert admin.create_acls([acl])["failed"] == []
    same = ACLFilter("User:alice", "*", ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    wait_until(lambda: admin.describe_acls(same)[0] == [acl], "the ACL", WAIT_S)
    ((_, deleted, _),) = admin.delete_acls([same])
    assert deleted == [acl]
    wait_until(lambda: admin.describe_acls(same)[0] == [], "no ACL", WAIT_S)


def scram(admin: KafkaAdminClient, served: Served) -> None:
    user = fresh("user")
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, SCRAM, "secret", iterations=8192)])
    wait_until(lambda: credentials(admin, user) == [8192], "the credential", WAIT_S)
    admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, SCRAM)])
    wait_until(lambda: credentials(admin, user) == [], "no credential", WAIT_S)


def credentials(admin: KafkaAdminClient, user: str) -> list[int]:
    """The iterations of a user's credentials; none when there is no such user."""
    with suppress(KafkaError):
        found = admin.describe_user_scram_credentials([user])[user]
        return [each["iterations"] for each in found["credential_infos"]]
    return []


def cluster(admin: KafkaAdminClient, served: Served) -> None:
    found = admin.describe_cluster()
    assert sorted(each["broker_id"] for each in found["brokers"]) == [1, 2, 3]
    assert found["controller_id"] in (1, 2, 3)
    topic = topic_of(served, 1)
    directories = admin.describe_log_dirs({topic: [0]})
    assert len(directories) == 3
    assert admin.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"] in (1, 2, 3)
    assert "metadata.version" in admin.describe_features()


def transactions(admin: KafkaAdminClient, served: Served) -> None:
    topic, transactional_id = topic_of(served, 1), fresh("id")
    with KafkaPython().writer(served.bootstrap, {"transactional.id": transactional_id}) as writer:
        writer.init_transactions()
        writer.begin()
        writer.send(topic, b"open", 0)
        writer.flush()
        found = admin.describe_transactions([transactional_id])
        assert found[transactional_id].state.name.upper() == "ONGOING"
        (producers,) = admin.describe_producers([TopicPartition(topic, 0)]).values()
        assert len(producers.active_producers if hasattr(producers, "active_producers") else producers) == 1
        writer.abort()


CHECKS = {
    "admin: create, describe and delete topics, more partitions, refusals": with_admin(topics),
    "admin: describe, alter (incremental and whole), reset configs of a topic; those of a broker": with_admin(configs),
    "admin: list, describe, delete groups; list, alter, reset, delete their offsets": with_admin(groups_and_offsets),
    "admin: delete records, list offsets": with_admin(records_and_offsets),
    "admin: create, describe, delete ACLs": with_admin(acls),
    "admin: create, describe, delete SCRAM credentials": with_admin(scram),
    "admin: describe cluster, log dirs, metadata quorum, features": with_admin(cluster),
    "admin: describe transactions and producers": with_admin(transactions),
}
