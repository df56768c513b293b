"""The admin client of @platformatic/kafka, call by call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.node.clients import NodeAdmin, NodeClient
from tests.lab.foreign.node.process import Big, NodeError
from tests.lab.foreign.python import groups
from tests.lab.foreign.python.records import FIRST_MS, KEPT, read, topic_of, value
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

WAIT_S, COUNT, PARTITIONS = 60, 200, groups.PARTITIONS
TOPIC, BROKER = 2, 4
LITERAL, ANY, READ, ALLOW = 3, 1, 3, 3
SET, DELETE = 0, 1
"""Kafka's numbers for resources, patterns, operations, permissions, and changes of configs."""
LATEST, EARLIEST = -1, -2


def topics(client: NodeClient, served: Served) -> None:
    topic = fresh("topic")
    asked = {"topics": [topic], "partitions": 2, "replicas": 3}
    with client.admin(served.bootstrap, {"retries": 0}) as admin:
        (made,) = admin.call("createTopics", {**asked, "configs": [{"name": "retention.ms", "value": "1234567"}]})
        assert (made["name"], made["partitions"], made["replicas"]) == (topic, 2, 3)
        assert made["configuration"]["retention.ms"] == "1234567"
        with pytest.raises(NodeError, match="TOPIC_ALREADY_EXISTS"):
            admin.call("createTopics", asked)
        with pytest.raises(NodeError, match="INVALID_REPLICATION_FACTOR"):
            admin.call("createTopics", {"topics": [fresh("topic")], "partitions": 1, "replicas": 4})
        admin.call("createPartitions", {"topics": [{"name": topic, "count": 5}]})
        wait_until(lambda: replicas(admin, topic) == [3] * 5, f"5 partitions of {topic}", WAIT_S)
        assert topic in admin.call("listTopics")
        admin.call("deleteTopics", {"topics": [topic]})
        wait_until(lambda: topic not in admin.call("listTopics"), f"{topic} is gone", WAIT_S)


def replicas(admin: NodeAdmin, topic: str) -> list[int]:
    found = admin.call("metadata", {"topics": [topic], "forceUpdate": True})["topics"][topic]
    return [len(each["replicas"]) for each in found["partitions"]]


def configs(client: NodeClient, served: Served) -> None:
    topic = topic_of(served, 1)
    resource = {"resourceType": TOPIC, "resourceName": topic}
    with client.admin(served.bootstrap) as admin:
        change = {"name": "retention.ms", "value": "1234567", "configOperation": SET}
        admin.call("incrementalAlterConfigs", {"resources": [{**resource, "configs": [change]}]})
        assert config(admin, TOPIC, topic)["retention.ms"] == "1234567"
        whole = {**resource, "configs": [{"name": "segment.ms", "value": "7200000"}]}
        admin.call("alterConfigs", {"resources": [whole]})
        assert config(admin, TOPIC, topic)["segment.ms"] == "7200000"
        assert config(admin, TOPIC, topic)["retention.ms"] == "604800000"
        removed = {"name": "segment.ms", "configOperation": DELETE}
        admin.call("incrementalAlterConfigs", {"resources": [{**resource, "configs": [removed]}]})
        assert config(admin, TOPIC, topic)["segment.ms"] == "604800000"
        assert "listeners" in config(admin, BROKER, "1")


def config(admin: NodeAdmin, kind: int, name: str) -> dict[str, Any]:
    asked = {"resources": [{"resourceType": kind, "resourceName": name}], "includeSynonyms": True}
    (found,) = admin.call("describeConfigs", asked)
    return {each["name"]: each["value"] for each in found["configs"]}


def groups_and_offsets(client: NodeClient, served: Served) -> None:
    topic, group = topic_of(served, PARTITIONS), fresh("group")
    groups.write(client, served, topic, 0)
    everywhere = [{"partition": number, "offset": Big(7)} for number in range(PARTITIONS)]
    with client.admin(served.bootstrap) as admin:
        with client.reader(served.bootstrap, {"group.id": group, **groups.CLASSIC}) as reader:
            reader.subscribe(topic)
            read(reader, COUNT)
            reader.commit()
            found = admin.call("describeGroups", {"groups": [group]})[group]
            assert (found["state"], len(found["members"])) == ("Stable", 1)
        wait_until(lambda: state(admin, group) == "Empty", "an empty group", WAIT_S)
        assert group in admin.call("listGroups")
        assert offsets(admin, group) == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)
        changed = [{"name": topic, "partitionOffsets": everywhere}]
        admin.call("alterConsumerGroupOffsets", {"groupId": group, "topics": changed})
        assert offsets(admin, group) == dict.fromkeys(range(PARTITIONS), 7)
        removed = [{"name": topic, "partitionIndexes": [0]}]
        admin.call("deleteConsumerGroupOffsets", {"groupId": group, "topics": removed})
        assert offsets(admin, group) == dict.fromkeys(range(1, PARTITIONS), 7)
        admin.call("deleteGroups", {"groups": [group]})
        assert group not in admin.call("listGroups")


def state(admin: NodeAdmin, group: str) -> str:
    return admin.call("describeGroups", {"groups": [group]})[group]["state"]


def offsets(admin: NodeAdmin, group: str) -> dict[int, int]:
    (found,) = admin.call("listConsumerGroupOffsets", {"groups": [group]})
    return {
        each["partitionIndex"]: each["committedOffset"] for topic in found["topics"] for each in topic["partitions"]
    }


def modern_groups(client: NodeClient, served: Served) -> None:
    """A KIP-848 group and a classic one, each listed by its own type alone."""
    topic, modern, classic = topic_of(served, PARTITIONS), fresh("group"), fresh("group")
    with (
        client.admin(served.bootstrap) as admin,
        client.reader(served.bootstrap, {"group.id": modern, **groups.MODERN}) as reader,
        client.reader(served.bootstrap, {"group.id": classic, **groups.CLASSIC}) as other,
    ):
        for each in (reader, other):
            each.subscribe(topic)
        for kind, own, others in (("consumer", modern, classic), ("classic", classic, modern)):
            found = admin.call("listGroups", {"types": [kind]})
            assert own in found, kind
            assert others not in found, kind
            assert found[own]["groupType"].lower() == kind


def records_and_offsets(client: NodeClient, served: Served) -> None:
    topic = topic_of(served, 1, **KEPT)
    with client.writer(served.bootstrap, {}) as writer:
        for number in range(COUNT):
            writer.send(topic, value(number), 0, timestamp_ms=FIRST_MS + 10 * number)
        writer.flush()
    part = {"name": topic, "partitions": [{"partition": 0, "offset": Big(20)}]}
    with client.admin(served.bootstrap) as admin:
        (found,) = admin.call("deleteRecords", {"topics": [part]})
        assert found["partitions"] == [{"partition": 0, "lowWatermark": 20}]
        wait_until(lambda: listed(admin, topic, EARLIEST) == 20, "the log start offset", WAIT_S)
        assert listed(admin, topic, LATEST) == COUNT
        assert listed(admin, topic, FIRST_MS + 495) == 50


def listed(admin: NodeAdmin, topic: str, timestamp_ms: int) -> int:
    asked = [{"partitionIndex": 0, "timestamp": Big(timestamp_ms)}]
    (found,) = admin.call("listOffsets", {"topics": [{"name": topic, "partitions": asked}]})
    return found["partitions"][0]["offset"]


def acls(client: NodeClient, served: Served) -> None:
    resource = {"resourceType": TOPIC, "resourceName": fresh("topic"), "resourcePatternType": LITERAL}
    acl = {"principal": "User:alice", "host": "*", "operation": READ, "permissionType": ALLOW}
    same = {"filter": {**resource, "principal": "User:alice", "host": "*", "operation": ANY, "permissionType": ANY}}
    with client.admin(served.bootstrap) as admin:
        admin.call("createAcls", {"creations": [{**resource, **acl}]})
        wait_until(lambda: [each["acls"] for each in admin.call("describeAcls", same)] == [[acl]], "the ACL", WAIT_S)
        (deleted,) = admin.call("deleteAcls", {"filters": [same["filter"]]})
        assert deleted["principal"] == "User:alice"
        wait_until(lambda: admin.call("describeAcls", same) == [], "no ACL", WAIT_S)


def quotas(client: NodeClient, served: Served) -> None:
    user = {"entityType": "user", "entityName": fresh("user")}
    asked = {"components": [{"entityType": "user", "matchType": 0, "match": user["entityName"]}]}
    limit = {"key": "producer_byte_rate", "value": 1_000_000, "remove": False}
    with client.admin(served.bootstrap) as admin:
        admin.call("alterClientQuotas", {"entries": [{"entities": [user], "ops": [limit]}]})
        wait_until(lambda: limits(admin, asked) == {"producer_byte_rate": 1_000_000}, "the quota", WAIT_S)
        removed = {"key": "producer_byte_rate", "remove": True}
        admin.call("alterClientQuotas", {"entries": [{"entities": [user], "ops": [removed]}]})
        wait_until(lambda: limits(admin, asked) == {}, "no quota", WAIT_S)


def limits(admin: NodeAdmin, asked: dict[str, Any]) -> dict[str, float]:
    found = admin.call("describeClientQuotas", asked)
    return {each["key"]: each["value"] for entry in found for each in entry["values"]}


def cluster(client: NodeClient, served: Served) -> None:
    topic = topic_of(served, 1)
    with client.admin(served.bootstrap) as admin:
        found = admin.call("metadata", {})
        assert sorted(map(int, found["brokers"])) == [1, 2, 3]
        assert found["controllerId"] in (1, 2, 3)
        folders = admin.call("describeLogDirs", {"topics": [{"name": topic, "partitions": [0]}]})
        assert sorted(each["broker"] for each in folders) == [1, 2, 3]
        assert all(topic in {each["name"] for each in broker["results"][0]["topics"]} for broker in folders)


CHECKS: dict[str, Callable[[NodeClient, Served], None]] = {
    "admin: create, list and delete topics, more partitions, refusals": topics,
    "admin: describe, alter (incremental and whole), reset configs of a topic; those of a broker": configs,
    "admin: list, describe, delete groups; list, alter, delete their offsets": groups_and_offsets,
    "admin: list groups by type": modern_groups,
    "admin: delete records, list offsets": records_and_offsets,
    "admin: create, describe, delete ACLs": acls,
    "admin: alter and describe quotas": quotas,
    "admin: describe cluster and log dirs": cluster,
}
