"""The reassign-partitions tool: its files, its flags, and its words, which are Kafka's."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.text.reassignment import (
    ReassignmentState,
    assignment_json,
    parse_brokers,
    parse_plan,
    parse_reassignment,
    parse_topics,
    states_text,
    under_way_text,
)
from stratalog.jobs.topics.reassign_partitions import ReassignCommand, TerseError, main
from stratalog.replication.controller.brokers import IsrChange, alter_partition
from stratalog.replication.controller.reassignment import PartitionReassignment
from stratalog.replication.metadata.records import DYNAMIC_DEFAULT, FenceBrokerRecord, RegisterBrokerRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.replication.images import broker_epochs_of

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 1)


def plan_of(**replicas: list[int]) -> str:
    """`foo=[4, 5]`: partition 0 of foo."""
    rows = [{"topic": topic, "partition": 0, "replicas": brokers} for topic, brokers in replicas.items()]
    return json.dumps({"version": 1, "partitions": rows})


# -- files ---------------------------------------------------------------------------------------------------


def test_a_plan_is_read_with_or_without_log_dirs_and_written_with_them() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"bar","partition":1,"replicas":[3],"log_dirs":["any"]},'
        '{"topic":"foo","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    )
    assert parse_plan(text) == {BAR: (3,), FOO: (1, 2)}
    assert assignment_json({FOO: (1, 2), BAR: (3,)}) == text
    assert parse_plan('{"partitions": [{"topic": "foo", "partition": 0, "replicas": [1, 2]}]}') == {FOO: (1, 2)}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("{", "The input string is not a valid JSON"),
        ("[]", "not a JSON object"),
        ('{"version": 2, "partitions": []}', "Not supported version field value 2"),
        ('{"partitions": {}}', "Field partitions is not a list"),
        ("{}", "Partition reassignment list cannot be empty"),
        ('{"partitions": [{"topic": "foo", "partition": 0}]}', "found 'replicas'"),
        (plan_of(foo=[]), "Partition replica list cannot be empty"),
        (
            '{"partitions": [{"topic": "foo", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]}]}',
            r"Size of replicas list \[1, 2\] is different from size of log dirs list \[any\] for partition foo-0",
        ),
        (
            '{"partitions": [{"topic": "foo", "partition": 0, "replicas": [1], "log_dirs": ["/x"]}]}',
            r"log_dirs of partition foo-0 can only be 'any', not \[/x\]",
        ),
        (
            (
                '{"partitions": [{"topic": "foo", "partition": 0, "replicas": [1]}, '
                '{"topic": "foo", "partition": 0, "replicas": [2]}]}'
            ),
            "Partition reassignment contains duplicate topic partitions: foo-0",
        ),
        (
            plan_of(foo=[1, 2, 1], bar=[3, 3]),
            (
                "Partition replica lists may not contain duplicate entries: foo-0 contains multiple entries for 1. "
                "bar-0 contains multiple entries for 3"
            ),
        ),
    ],
)
def test_a_plan_that_cannot_be_executed_is_refused_in_kafkas_words(text: str, refusal: str) -> None:
    with pytest.raises(UsageError, match=refusal):
        parse_plan(text)


def test_a_file_to_verify_may_name_a_partition_twice() -> None:
    one = '{"topic": "foo", "partition": 0, "replicas": '
    text = f'{{"partitions": [{one}[1]}}, {one}[]}}]}}'
    assert parse_reassignment(text) == [(FOO, (1,)), (FOO, ())]


def test_topics_and_brokers_are_named_once() -> None:
    assert parse_topics('{"topics": [{"topic": "foo"}, {"topic": "bar"}], "version": 1}') == ["foo", "bar"]
    with pytest.raises(UsageError, match=r"List of topics to reassign contains duplicate entries: \[foo\]"):
        parse_topics('{"topics": [{"topic": "foo"}, {"topic": "foo"}]}')
    with pytest.raises(UsageError, match=r"Broker list contains duplicate entries: \[4\]"):
        parse_brokers("4,5,4")
    with pytest.raises(UsageError, match="Broker list 4,x"):
        parse_brokers("4,x")


def test_states_and_lists_are_printed_as_kafka_prints_them() -> None:
    states = {
        FOO: ReassignmentState((1, 2), (1, 2), True),
        BAR: ReassignmentState((3, 1), (3,), False),
        TopicPartition("foo", 1): ReassignmentState((1, 2), (3, 4), True),
    }
    assert states_text(states).splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition bar-1 is still in progress.",
        "Reassignment of partition foo-0 is completed.",
        "There is no active reassignment of partition foo-1, but replica set is 1,2 rather than 3,4.",
    ]
    assert under_way_text({}) == "No partition reassignments found."
    moving = {FOO: PartitionReassignment((3, 1, 2), (3,), (2,)), BAR: PartitionReassignment((1, 2), (2,), ())}
    assert under_way_text(moving).splitlines() == [
        "Current partition reassignments:",
        "foo-0: replicas: 3,1,2. adding: 3. removing: 2.",
        "bar-1: replicas: 1,2. adding: 2.",
    ]


# -- flags -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (
            ["--additional"],
            "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list",
        ),
        (["--list", "--verify"], "exactly one action"),
        (["--execute"], r'Missing required argument "\[reassignment-json-file\]"'),
        (["--generate", "--broker-list", "1"], r'Missing required argument "\[topics-to-move-json-file\]"'),
        (["--list", "--throttle", "1"], r'Option "\[throttle\]" can\'t be used with action "\[list\]"'),
        (["--verify", "--reassignment-json-file", "x", "--additional"], r'Option "\[additional\]" can\'t be used with'),
    ],
)
def test_flags_that_do_not_go_together_are_refused_in_kafkas_words(arguments: list[str], refusal: str) -> None:
    with pytest.raises(UsageError, match=refusal):
        main.checked(arguments)


def test_a_missing_cluster_is_an_error_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 1
    assert "Which cluster? Give --root ROOT" in capsys.readouterr().err


# -- on a cluster ------------------------------------------------------------------------------------------------


class Tool:
    """The tool on a cluster of six brokers whose topic foo has the partitions 0 and 1 on brokers 1, 2 and 3."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = MemoryCluster()
        for broker in (4, 5, 6):
            self.cluster.commit(RegisterBrokerRecord(broker, broker, f"run-{broker}", f"memory:///broker-{broker}"))
        self.cluster.create_topic("foo", partitions=2)
        self.view = ClusterView(ROOT, stores=self.cluster.stores, clock=self.cluster.clock, ids=self.cluster.ids)
        self._folder = folder
        self._capsys = capsys

    def run(self, *arguments: str, plan: str = "", topics: str = "") -> list[str]:
        """The lines that it prints."""
        for name, content in (("plan", plan), ("topics", topics)):
            (self._folder / name).write_text(content)
        files = {"plan": ["--reassignment-json-file"], "topics": ["--topics-to-move-json-file"]}
        given = [*arguments]
        for name, content in (("plan", plan), ("topics", topics)):
            given += [*files[name], str(self._folder / name)] if content else []
        flags = main.checked(given)
        ReassignCommand(flags, Admin(ROOT, view=self.view), random.Random(1)).run(flags.action)
        return self._capsys.readouterr().out.splitlines()

    def join(self, named: TopicPartition, *isr: int) -> None:
        """The leader lets replicas into the ISR."""
        state = self.cluster.state(named)
        epochs = broker_epochs_of(self.cluster.metadata.image)
        change = IsrChange(
            self.cluster.metadata.image.identified(named), state.leader_epoch, state.partition_epoch, isr, epochs
        )
        broker_epoch = epochs[state.leader]
        self.cluster.metadata.propose(lambda image: alter_partition(image, state.leader, broker_epoch, [change]))

    def config(self, topic: str) -> dict[str, str]:
        self.view.refresh()
        return dict(self.view.image.topic_config(topic))


@pytest.fixture
def tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(tmp_path, capsys)


CURRENT = (
    '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2,3],"log_dirs":["any","any","any"]},'
    '{"topic":"foo","partition":1,"replicas":[1,2,3],"log_dirs":["any","any","any"]}]}'
)
TOPICS = '{"topics": [{"topic": "foo"}], "version": 1}'


def test_a_reassignment_from_the_plan_to_the_end(tool: Tool) -> None:
    generated = tool.run("--generate", "--broker-list", "4,5,6", topics=TOPICS)
    assert generated[:4] == [
        "Current partition replica assignment",
        CURRENT,
        "",
        "Proposed partition reassignment configuration",
    ]
    plan = generated[4]
    assert {broker for replicas in parse_plan(plan).values() for broker in replicas} == {4, 5, 6}
    assert tool.run("--list") == ["No partition reassignments found."]
    assert tool.run("--execute", plan=plan) == [
        "Current partition replica assignment",
        "",
        CURRENT,
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        "Successfully started partition reassignments for foo-0,foo-1",
    ]
    listed = tool.run("--list")
    assert listed[0] == "Current partition reassignments:"
    assert listed[1].endswith(",1,2,3. adding: 4,5,6. removing: 1,2,3.")
    assert tool.run("--verify", plan=plan) == [
        "Status of partition reassignment:",
        "Reassignment of partition foo-0 is still in progress.",
        "Reassignment of partition foo-1 is still in progress.",
        "",
    ]
    for partition in (0, 1):
        tool.join(TopicPartition("foo", partition), 1, 2, 3, 4, 5, 6)
    assert tool.run("--verify", plan=plan) == [
        "Status of partition reassignment:",
        "Reassignment of partition foo-0 is completed.",
        "Reassignment of partition foo-1 is completed.",
        "",
        "Clearing broker-level throttles on brokers 1,2,3,4,5,6",
        "Clearing topic-level throttles on topic foo",
    ]
    assert tool.run("--verify", "--preserve-throttles", plan=CURRENT)[1].startswith(
        "There is no active reassignment of partition foo-0, but replica set is "
    )


def test_a_throttle_is_set_with_the_move_and_cleared_when_it_is_verified(tool: Tool) -> None:
    plan = plan_of(foo=[1, 2, 4])
    printed = tool.run("--execute", "--throttle", "5000", plan=plan)
    assert printed[-3:] == [
        (
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
            "removed."
        ),
        "The inter-broker throttle limit was set to 5000 B/s",
        "Successfully started partition reassignment for foo-0",
    ]
    assert tool.config("foo") == {
        "leader.replication.throttled.replicas": "0:1,0:2,0:3",
        "follower.replication.throttled.replicas": "0:4",
    }
    rates = {f"{side}.replication.throttled.rate": "5000" for side in ("leader", "follower")}
    assert tool.config(DYNAMIC_DEFAULT) == rates
    tool.run("--execute", "--additional", "--throttle", "7000", plan=plan)
    assert set(tool.config(DYNAMIC_DEFAULT).values()) == {"7000"}
    tool.run("--verify", plan=plan)
    assert tool.config("foo"), "it goes on"
    tool.join(FOO, 1, 2, 3, 4)
    tool.run("--verify", plan=plan)
    assert (tool.config("foo"), tool.config(DYNAMIC_DEFAULT)) == ({}, {})


def test_a_second_reassignment_needs_additional(tool: Tool) -> None:
    tool.run("--execute", plan=plan_of(foo=[4, 5, 6]))
    with pytest.raises(TerseError, match="Cannot execute because there is an existing partition assignment"):
        tool.run("--execute", plan=plan_of(foo=[4, 5]))
    printed = tool.run("--execute", "--additional", plan=plan_of(foo=[4, 5]))
    assert printed[-1] == "Successfully started partition reassignment for foo-0"


def test_a_cancellation_names_what_it_cancelled(tool: Tool) -> None:
    plan = plan_of(foo=[4, 5, 6])
    tool.run("--execute", plan=plan)
    assert tool.run("--cancel", "--preserve-throttles", plan=plan) == [
        "Successfully cancelled partition reassignment for: foo-0",
        "None of the specified partition moves are active.",
    ]
    assert tool.cluster.state(FOO).replicas == (1, 2, 3)
    assert tool.run("--cancel", plan=plan) == [
        "None of the specified partition reassignments are active.",
        "None of the specified partition moves are active.",
        "Clearing broker-level throttles on brokers 1,2,3,4,5,6",
        "Clearing topic-level throttles on topic foo",
    ]


@pytest.mark.parametrize(
    ("arguments", "plan", "error", "words"),
    [
        ([], plan_of(foo=[1, 9]), UsageError, "Unknown broker id 9"),
        ([], plan_of(foo=[6]), UsageError, "Unknown broker id 6"),  # fenced
        ([], plan_of(none=[1]), UnknownTopicOrPartitionError, "Topic none not found."),
        (
            [],
            '{"partitions": [{"topic": "foo", "partition": 7, "replicas": [1]}]}',
            UnknownTopicOrPartitionError,
            "Unable to find partition: foo-7",
        ),
        (
            ["--disallow-replication-factor-change"],
            plan_of(foo=[1, 2]),
            TerseError,
            "Error reassigning partition\\(s\\):\nfoo-0: The replication factor is changed from 3 to 2",
        ),
    ],
)
def test_what_cannot_be_executed_is_said(
    tool: Tool, arguments: list[str], plan: str, error: type[Exception], words: str
) -> None:
    tool.cluster.commit(FenceBrokerRecord(6, 6))
    with pytest.raises(error, match=words):
        tool.run("--execute", *arguments, plan=plan)
    assert tool.run("--list")[-1] == "No partition reassignments found."


def test_racks_are_known_of_all_brokers_or_not_looked_at(tool: Tool) -> None:
    for broker, rack in ((4, "a"), (5, "b"), (6, None)):
        tool.cluster.commit(RegisterBrokerRecord(broker, 10 + broker, "run", f"memory:///broker-{broker}", rack=rack))
    with pytest.raises(UsageError, match="Not all brokers have rack information"):
        tool.run("--generate", "--broker-list", "4,5,6", topics=TOPICS)
    assert len(tool.run("--generate", "--disable-rack-aware", "--broker-list", "4,5,6", topics=TOPICS)) == 5
    with pytest.raises(UnknownTopicOrPartitionError, match=r"Topic none not found\."):
        tool.run("--generate", "--broker-list", "4,5,6", topics='{"topics": [{"topic": "none"}]}')
