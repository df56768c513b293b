"""The admin client of confluent-kafka, call by call."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.lab.foreign.admin import admin_client
from tests.lab.foreign.checks import fresh
from tests.lab.foreign.python import groups
from tests.lab.foreign.python.clients import Confluent
from tests.lab.foreign.python.records import read, topic_of
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

WAIT_S = 60
COUNT = 200


def admin_of(served: Served) -> AdminClient:
    return admin_client({"bootstrap.servers": served.bootstrap})


def result(futures: dict) -> object:
    """The one result of a call."""
    (future,) = futures.values()
    return future.result(WAIT_S)


def topics(served: Served) -> None:
    admin, topic = admin_of(served), fresh("topic")
    result(admin.create_topics([NewTopic(topic, 2, 3)], validate_only=True))
    assert topic not in admin.list_topics(timeout=WAIT_S).topics
    result(admin.create_topics([NewTopic(topic, 2, 3)]))
    assert_refused(lambda: result(admin.create_topics([NewTopic(topic, 2, 3)])), "TOPIC_ALREADY_EXISTS")
    assert_refused(lambda: result(admin.create_topics([NewTopic(fresh("t"), 1, 9)])), "INVALID_REPLICATION_FACTOR")
    result(admin.create_partitions([NewPartitions(topic, 5)]))
    assert_refused(lambda: result(admin.create_partitions([NewPartitions(topic, 4)])), "INVALID_PARTITIONS")
    wait_until(lambda: described(admin, topic) == (5, 3), f"5 partitions of {topic}", WAIT_S)
    result(admin.delete_topics([topic]))
    wait_until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, f"{topic} is gone", WAIT_S)


def described(admin: AdminClient, topic: str) -> tuple[int, int]:
    """(partitions, replicas of each)"""
    found = result(admin.describe_topics(TopicCollection([topic])))
    (replicas,) = {len(partition.replicas) for partition in found.partitions}
    return len(found.partitions), replicas


def assert_refused(call: object, name: str) -> None:
    """The call raises this error of Kafka's."""
    with pytest.raises(KafkaException) as raised:
        call()
    assert raised.value.args[0].name() == name


def configs(served: Served) -> None:
    admin, topic = admin_of(served), topic_of(served, 1)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    assert result(admin.describe_configs([resource]))["retention.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    set_config(admin, resource, "retention.ms", "1234567", AlterConfigOpType.SET)
    set_config(admin, resource, "cleanup.policy", "compact", AlterConfigOpType.APPEND)
    entries = result(admin.describe_configs([resource]))
    assert (entries["retention.ms"].value, entries["retention.ms"].is_default) == ("1234567", False)
    assert entries["cleanup.policy"].value == "delete,compact"
    set_config(admin, resource, "retention.ms", "", AlterConfigOpType.DELETE)
    assert result(admin.describe_configs([resource]))["retention.ms"].value == "604800000"
    bad = lambda: set_config(admin, resource, "retention.ms", "soon", AlterConfigOpType.SET)  # noqa: E731
    assert_refused(bad, "INVALID_CONFIG")
    result(admin.alter_configs([ConfigResource(ConfigResource.Type.TOPIC, topic, {"segment.ms": "7200000"})]))
    entries = result(admin.describe_configs([resource]))
    assert (entries["segment.ms"].value, entries["cleanup.policy"].value) == ("7200000", "delete")
    broker = result(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]))
    assert "listeners" in broker


def set_config(admin: AdminClient, resource: ConfigResource, name: str, value: str, op: AlterConfigOpType) -> None:
    entry = ConfigEntry(name, value, incremental_operation=op)
    asked = ConfigResource(resource.restype, resource.name, incremental_configs=[entry])
    result(admin.incremental_alter_configs([asked]))


def groups_and_offsets(served: Served) -> None:
    admin, client = admin_of(served), Confluent()
    topic, group = topic_of(served, groups.PARTITIONS), fresh("group")
    groups.write(client, served, topic, 0)
    with client.reader(served.bootstrap, {"group.id": group, **groups.classic(client, "range")}) as reader:
        reader.subscribe(topic)
        read(reader, COUNT)
        reader.commit()
        found = result(admin.describe_consumer_groups([group]))
        assert (found.state.name, len(found.members), found.partition_assignor) == ("STABLE", 1, "range")
        assert len(found.members[0].assignment.topic_partitions) == groups.PARTITIONS
        assert_refused(lambda: result(admin.delete_consumer_groups([group])), "NON_EMPTY_GROUP")
    wait_until(lambda: result(admin.describe_consumer_groups([group])).state.name == "EMPTY", "empty", WAIT_S)
    assert group in {each.group_id for each in admin.list_consumer_groups().result(WAIT_S).valid}
    assert offsets(admin, group) == [COUNT // groups.PARTITIONS] * groups.PARTITIONS
    wanted = [confluent_kafka.TopicPartition(topic, number, 7) for number in range(groups.PARTITIONS)]
    result(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]))
    assert offsets(admin, group) == [7] * groups.PARTITIONS
    result(admin.delete_consumer_groups([group]))
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(WAIT_S).valid}


def offsets(admin: AdminClient, group: str) -> list[int]:
    found = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    return [each.offset for each in sorted(found.topic_partitions, key=lambda each: each.partition)]


def modern_group(served: Served) -> None:
    admin, client = admin_of(served), Confluent()
    topic, group = topic_of(served, groups.PARTITIONS), fresh("group")
    groups.write(client, served, topic, 0)
    with client.reader(served.bootstrap, {"group.id": group, **groups.MODERN}) as reader:
        reader.subscribe(topic)
        read(reader, COUNT)
        reader.commit()
        found = result(admin.describe_consumer_groups([group]))
        assert (found.state.name, found.type.name, len(found.members)) == ("STABLE", "CONSUMER", 1)
    wait_until(lambda: result(admin.describe_consumer_groups([group])).state.name == "EMPTY", "empty", WAIT_S)
    result(admin.delete_consumer_groups([group]))


def records_and_offsets(served: Served) -> None:
    admin, client, topic = admin_of(served), Confluent(), topic_of(served, groups.PARTITIONS)
    groups.write(client, served, topic, 0)
    partition = confluent_kafka.TopicPartition(topic, 0, 20)
    assert result(admin.delete_records([partition])).low_watermark == 20
    ask = confluent_kafka.TopicPartition(topic, 0)
    assert result(admin.list_offsets({ask: OffsetSpec.earliest()})).offset == 20
    assert result(admin.list_offsets({ask: OffsetSpec.latest()})).offset == COUNT // groups.PARTITIONS
    assert result(admin.list_offsets({ask: OffsetSpec.max_timestamp()})).offset >= 20


def acls(served: Served) -> None:
    admin, topic = admin_of(served), fresh("topic")
    kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
    binding = AclBinding(kind, topic, pattern, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    result(admin.create_acls([binding]))
    same = AclBindingFilter(kind, topic, pattern, "User:alice", None, AclOperation.ANY, AclPermissionType.ANY)
    wait_until(lambda: admin.describe_acls(same).result(WAIT_S) == [binding], "the ACL", WAIT_S)
    assert result(admin.delete_acls([same])) == [binding]
    wait_until(lambda: admin.describe_acls(same).result(WAIT_S) == [], "no ACL", WAIT_S)


def scram(served: Served) -> None:
    admin, user = admin_of(served), fresh("user")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    result(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, b"secret")]))
    wait_until(lambda: credentials(admin, user) == [("SCRAM_SHA_256", 8192)], "the credential", WAIT_S)
    deletion = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
    result(admin.alter_user_scram_credentials([deletion]))
    wait_until(lambda: credentials(admin, user) == [], "no credential", WAIT_S)


def credentials(admin: AdminClient, user: str) -> list[tuple[str, int]]:
    try:
        found = result(admin.describe_user_scram_credentials([user]))
    except KafkaException as error:
        if error.args[0].name() != "RESOURCE_NOT_FOUND":
            raise
        return []
    return [(each.mechanism.name, each.iterations) for each in found.scram_credential_infos]


def cluster(served: Served) -> None:
    admin = admin_of(served)
    found = admin.describe_cluster().result(WAIT_S)
    assert sorted(node.id for node in found.nodes) == [1, 2, 3]
    assert sorted(f"{node.host}:{node.port}" for node in found.nodes) == sorted(served.bootstrap.split(","))
    assert found.controller.id in (1, 2, 3)
    assert len(found.cluster_id) > 0


CHECKS = {
    "admin: create, describe and delete topics, more partitions, refusals": topics,
    "admin: describe, alter (incremental and whole), reset configs of a topic; those of a broker": configs,
    "admin: list, describe, delete groups; list and alter their offsets": groups_and_offsets,
    "admin: describe and delete a KIP-848 group": modern_group,
    "admin: delete records, list offsets": records_and_offsets,
    "admin: create, describe, delete ACLs": acls,
    "admin: create, describe, delete SCRAM credentials": scram,
    "admin: describe the cluster": cluster,
}
