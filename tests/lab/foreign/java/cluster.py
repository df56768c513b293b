"""Kafka's tools for the cluster: ACLs, transactions, features, the quorum, versions."""

from __future__ import annotations

import re

import confluent_kafka

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.java.jvm import TOOLS, jvm, tool
from tests.lab.foreign.java.topics import WAIT_S
from tests.lab.foreign.python.records import topic_of
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

ACLS, TRANSACTIONS = "AclCommand", "TransactionsCommand"
QUORUM, VERSIONS = "MetadataQuorumCommand", "BrokerApiVersionsCommand"


def acls(served: Served) -> None:
    """Add, list and remove: of a topic, prefixed, of producers, consumers, the cluster; denials."""
    topic, user = fresh("guarded"), f"User:{fresh('user')}"

    def listed(*filters: str) -> str:
        return tool(served, ACLS, "--list", *filters)

    added = ("--allow-principal", user, "--operation", "Read", "--operation", "Describe", "--topic", topic)
    text = tool(served, ACLS, "--add", *added, "--allow-host", "10.0.0.1")
    assert f"Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name={topic}, patternType=LITERAL)`" in text
    tool(served, ACLS, "--add", "--deny-principal", user, "--operation", "Write", "--topic", topic)
    wait_until(lambda: "permissionType=DENY" in listed("--topic", topic), "the ACLs", WAIT_S)
    found = re.findall(r"host=(\S+), operation=(\w+), permissionType=(\w+)", listed("--topic", topic))
    allowed = [("10.0.0.1", operation, "ALLOW") for operation in ("DESCRIBE", "READ")]
    assert sorted(set(found)) == [("*", "WRITE", "DENY"), *allowed], found
    tool(served, ACLS, "--add", "--allow-principal", user, "--producer", "--topic", topic[:-2],
         "--resource-pattern-type", "prefixed", "--transactional-id", "*")  # fmt: skip
    tool(served, ACLS, "--add", "--allow-principal", user, "--consumer", "--topic", topic, "--group", topic)
    tool(served, ACLS, "--add", "--allow-principal", user, "--operation", "Alter", "--cluster")
    by_match = ("--topic", topic, "--resource-pattern-type", "match")
    wait_until(lambda: "patternType=PREFIXED" in listed(*by_match), "the prefixed ACLs", WAIT_S)
    wait_until(lambda: "operation=ALTER" in listed("--cluster"), "the cluster's ACLs", WAIT_S)
    of_user = listed("--principal", user)
    for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"):
        assert f"resourceType={kind}" in of_user, of_user
    for place in (("--topic", topic), ("--topic", topic[:-2], "--resource-pattern-type", "prefixed"),
                  ("--group", topic), ("--cluster",),
                  ("--transactional-id", "*", "--resource-pattern-type", "prefixed")):  # fmt: skip
        tool(served, ACLS, "--remove", *place, "--force")
    wait_until(lambda: user not in listed(), "no ACLs", WAIT_S)


def transactions(served: Served) -> None:
    """List, describe, find; abort one that its producer left open; `find-hanging` finds none of the others."""
    topic, transactional_id = topic_of(served, 1), fresh("txn")
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": served.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "log_level": 2,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(WAIT_S)
    text = tool(served, TRANSACTIONS, "list")
    ((_, _, producer_id, state),) = [row for row in rows_of(text) if row[0] == transactional_id]
    assert state == "Ongoing", text
    text = tool(served, TRANSACTIONS, "describe", "--transactional-id", transactional_id)
    assert {producer_id, "Ongoing", "60000", f"{topic}-0"} <= set(text.split()), text
    place = ("--topic", topic, "--partition", 0)
    (row,) = rows_of(tool(served, TRANSACTIONS, "describe-producers", *place))
    assert (row[0], row[-1]) == (producer_id, "0"), row
    for broker in (1, 2, 3):
        own = rows_of(tool(served, TRANSACTIONS, "describe-producers", *place, "--broker-id", broker))
        assert [each[0] for each in own] == [producer_id], own
        rows_of(tool(served, TRANSACTIONS, "find-hanging", "--broker-id", broker, "--max-transaction-timeout", 15))
    assert not rows_of(tool(served, TRANSACTIONS, "find-hanging", "--topic", topic))
    tool(served, TRANSACTIONS, "abort", *place, "--start-offset", 0)
    (row,) = rows_of(tool(served, TRANSACTIONS, "describe-producers", *place))
    assert row[-1] == "None", row
    tool(served, TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", transactional_id)
    text = tool(served, TRANSACTIONS, "describe", "--transactional-id", transactional_id)
    assert {"CompleteAbort", "Empty"} & set(text.split()), text


def rows_of(text: str) -> list[list[str]]:
    """A table's rows as words, without its header."""
    return [line.split() for line in text.splitlines()[1:] if line.strip()]


def features(served: Served) -> None:
    text = tool(served, "FeatureCommand", "describe")
    found = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", text))
    assert (found["group.version"], found["transaction.version"]) == ("1", "2"), text
    assert "metadata.version" in found, text
    tool(served, "FeatureCommand", "version-mapping")


def quorum(served: Served) -> None:
    text = tool(served, QUORUM, "describe", "--status")
    found = dict(re.findall(r"^(\w+):\s+(.*)$", text, re.MULTILINE))
    assert found["LeaderId"] in "123", text
    assert found["MaxFollowerLag"] == "0", text
    text = tool(served, QUORUM, "describe", "--replication", "--human-readable")
    rows = rows_of(text)
    assert sorted(row[0] for row in rows) == ["1", "2", "3"], text
    assert sum("Leader" in row for row in rows) == 1, text


def versions(served: Served) -> None:
    text = tool(served, VERSIONS)
    for broker in (1, 2, 3):
        assert re.search(rf"^{re.escape(served.address(broker))} \(id: {broker} rack: \S+", text, re.MULTILINE), text
    assert text.count("Produce(0): ") == 3, text
    assert "ERROR" not in text, text


def cluster(served: Served) -> None:
    text = run_cluster_tool(served, "cluster-id")
    assert re.search(r"Cluster ID: \S{22}", text), text
    text = run_cluster_tool(served, "list-endpoints")
    assert {served.address(broker).split(":")[1] for broker in (1, 2, 3)} <= set(text.split()), text


def run_cluster_tool(served: Served, command: str) -> str:
    """`kafka-cluster` takes its command first."""
    ended = jvm().run(f"{TOOLS}.ClusterTool", command, "--bootstrap-server", served.bootstrap)
    assert ended.code == 0, ended
    return ended.out


CHECKS = {
    "kafka-acls: add, list, remove": acls,
    "kafka-transactions: list, describe, describe-producers, find-hanging, abort, force": transactions,
    "kafka-features": features,
    "kafka-metadata-quorum": quorum,
    "kafka-broker-api-versions": versions,
    "kafka-cluster": cluster,
}
