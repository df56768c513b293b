"""The admin client of KafkaJS, call by call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.node.clients import NodeAdmin, NodeClient
from tests.lab.foreign.node.process import NodeError
from tests.lab.foreign.python import groups
from tests.lab.foreign.python.records import FIRST_MS, KEPT, read, topic_of, value
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

WAIT_S, COUNT, PARTITIONS = 60, 200, groups.PARTITIONS
TOPIC, BROKER = 2, 4
LITERAL, ANY, READ, ALLOW = 3, 1, 3, 3
"""KafkaJS's numbers for resources, patterns, operations and permissions."""


def topics(client: NodeClient, served: Served) -> None:
    topic = fresh("topic")
    asked = {"topic": topic, "numPartitions": 2, "replicationFactor": 3}
    with client.admin(served.bootstrap) as admin:
        assert admin.call("createTopics", {"topics": [asked], "waitForLeaders": True}) is True
        assert admin.call("createTopics", {"topics": [asked]}) is False
        with pytest.raises(NodeError, match=r"INVALID_REPLICATION_FACTOR|Replication-factor"):
            admin.call("createTopics", {"topics": [{"topic": fresh("topic"), "replicationFactor": 4}]})
        admin.call("createPartitions", {"topicPartitions": [{"topic": topic, "count": 5}]})
        wait_until(lambda: replicas(admin, topic) == [3] * 5, f"5 partitions of {topic}", WAIT_S)
        assert topic in admin.call("listTopics")
        admin.call("deleteTopics", {"topics": [topic]})
        wait_until(lambda: topic not in admin.call("listTopics"), f"{topic} is gone", WAIT_S)


def replicas(admin: NodeAdmin, topic: str) -> list[int]:
    (found,) = admin.call("fetchTopicMetadata", {"topics": [topic]})["topics"]
    return [len(each["replicas"]) for each in found["partitions"]]


def configs(client: NodeClient, served: Served) -> None:
    topic = topic_of(served, 1)
    entries = [{"name": "retention.ms", "value": "1234567"}]
    with client.admin(served.bootstrap) as admin:
        admin.call("alterConfigs", {"resources": [{"type": TOPIC, "name": topic, "configEntries": entries}]})
        assert config(admin, TOPIC, topic)["retention.ms"] == "1234567"
        assert "listeners" in config(admin, BROKER, "1")


def config(admin: NodeAdmin, kind: int, name: str) -> dict[str, Any]:
    (found,) = admin.call("describeConfigs", {"resources": [{"type": kind, "name": name}]})["resources"]
    return {each["configName"]: each["configValue"] for each in found["configEntries"]}


def groups_and_offsets(client: NodeClient, served: Served) -> None:
    topic, group = topic_of(served, PARTITIONS), fresh("group")
    groups.write(client, served, topic, 0)
    everywhere = [{"partition": number, "offset": "7"} for number in range(PARTITIONS)]
    with client.admin(served.bootstrap) as admin:
        with client.reader(served.bootstrap, {"group.id": group, **groups.CLASSIC}) as reader:
            reader.subscribe(topic)
            read(reader, COUNT)
            reader.commit()
            (found,) = admin.call("describeGroups", [group])["groups"]
            assert (found["state"], len(found["members"]), found["protocolType"]) == ("Stable", 1, "consumer")
        wait_until(lambda: state(admin, group) == "Empty", "an empty group", WAIT_S)
        assert group in {each["groupId"] for each in admin.call("listGroups")["groups"]}
        assert offsets(admin, group, topic) == [COUNT // PARTITIONS] * PARTITIONS
        admin.call("setOffsets", {"groupId": group, "topic": topic, "partitions": everywhere})
        assert offsets(admin, group, topic) == [7] * PARTITIONS
        admin.call("resetOffsets", {"groupId": group, "topic": topic, "earliest": True})
        assert offsets(admin, group, topic, resolveOffsets=True) == [0] * PARTITIONS
        (deleted,) = admin.call("deleteGroups", [group])
        assert (deleted["groupId"], deleted["errorCode"]) == (group, 0)
        assert group not in {each["groupId"] for each in admin.call("listGroups")["groups"]}


def state(admin: NodeAdmin, group: str) -> str:
    return admin.call("describeGroups", [group])["groups"][0]["state"]


def offsets(admin: NodeAdmin, group: str, topic: str, **more: bool) -> list[int]:
    (found,) = admin.call("fetchOffsets", {"groupId": group, "topics": [topic], **more})
    return [int(each["offset"]) for each in sorted(found["partitions"], key=lambda each: each["partition"])]


def records_and_offsets(client: NodeClient, served: Served) -> None:
    topic = topic_of(served, 1, **KEPT)
    with client.writer(served.bootstrap, {}) as writer:
        for number in range(COUNT):
            writer.send(topic, value(number), 0, timestamp_ms=FIRST_MS + 10 * number)
        writer.flush()
    with client.admin(served.bootstrap) as admin:
        assert ends(admin, topic) == ("0", str(COUNT))  # before this KafkaJS does not know the partition's leader
        admin.call("deleteTopicRecords", {"topic": topic, "partitions": [{"partition": 0, "offset": "20"}]})
        wait_until(lambda: ends(admin, topic) == ("20", str(COUNT)), "the log start offset", WAIT_S)
        (found,) = admin.call("fetchTopicOffsetsByTimestamp", topic, FIRST_MS + 495)
        assert found == {"partition": 0, "offset": "50"}
        (found,) = admin.call("fetchTopicOffsetsByTimestamp", topic, FIRST_MS + 10 * COUNT)
        assert found == {"partition": 0, "offset": str(COUNT)}


def ends(admin: NodeAdmin, topic: str) -> tuple[str, str]:
    (found,) = admin.call("fetchTopicOffsets", topic)
    return found["low"], found["high"]


def acls(client: NodeClient, served: Served) -> None:
    resource = {"resourceType": TOPIC, "resourceName": fresh("topic"), "resourcePatternType": LITERAL}
    acl = {"principal": "User:alice", "host": "*", "operation": READ, "permissionType": ALLOW}
    same = {**resource, "principal": "User:alice", "host": "*", "operation": ANY, "permissionType": ANY}
    with client.admin(served.bootstrap) as admin:
        assert admin.call("createAcls", {"acl": [{**resource, **acl}]}) is True
        wait_until(lambda: described(admin, same) == [[acl]], "the ACL", WAIT_S)
        (found,) = admin.call("deleteAcls", {"filters": [same]})["filterResponses"]
        assert [each["principal"] for each in found["matchingAcls"]] == ["User:alice"]
        wait_until(lambda: described(admin, same) == [], "no ACL", WAIT_S)


def described(admin: NodeAdmin, same: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The ACLs of each resource that the filter finds."""
    return [each["acls"] for each in admin.call("describeAcls", same)["resources"]]


def cluster(client: NodeClient, served: Served) -> None:
    with client.admin(served.bootstrap) as admin:
        found = admin.call("describeCluster")
        assert sorted(each["nodeId"] for each in found["brokers"]) == [1, 2, 3]
        assert found["controller"] in (1, 2, 3)
        assert found["clusterId"]


def reassignments(client: NodeClient, served: Served) -> None:
    topic = topic_of(served, 1)
    plan = [{"topic": topic, "partitionAssignment": [{"partition": 0, "replicas": [1, 2]}]}]
    with client.admin(served.bootstrap) as admin:
        admin.call("alterPartitionReassignments", {"topics": plan})
        wait_until(lambda: replicas(admin, topic) == [2], "two replicas", WAIT_S)
        wait_until(lambda: admin.call("listPartitionReassignments", {})["topics"] == [], "the end of the move", WAIT_S)


CHECKS: dict[str, Callable[[NodeClient, Served], None]] = {
    "admin: create, list, describe and delete topics, more partitions, refusals": topics,
    "admin: describe and alter configs of a topic; those of a broker": configs,
    "admin: list, describe, delete groups; fetch, set, reset their offsets": groups_and_offsets,
    "admin: delete records, offsets of a topic, by time": records_and_offsets,
    "admin: create, describe, delete ACLs": acls,
    "admin: describe the cluster": cluster,
    "admin: alter and list reassignments of partitions": reassignments,
}
