"""The tools as a user has them: a cluster in one process, everything else from others, beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jobs.tool_processes import ENVIRONMENT, WAIT_S, Ended, call


def start_cluster(path: Path) -> subprocess.Popen[str]:
    """A running cluster whose greeting has been read."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stratalog", "cluster", "--path", str(path), "--fetcher", "thread", "-t", "made:2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None
    watchdog = threading.Timer(WAIT_S, process.kill)
    watchdog.start()
    greeting = []
    for line in process.stdout:
        greeting.append(line)
        if line.startswith("Running."):
            break
    watchdog.cancel()
    assert f"STRATA_ROOT={path}/metadata" in "".join(greeting)
    return process


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a cluster that runs, for all tests of the module."""
    path = tmp_path_factory.mktemp("jobs") / "cluster"
    process = start_cluster(path)
    yield path
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (0, "Stopping ...\nStopped.\n")


@pytest.fixture(scope="module")
def tool(path: Path) -> Callable[..., Ended]:
    """`tool("topics", "--list")`: a tool beside the running cluster."""

    def run(name: str, *arguments: str, lines: str = "") -> Ended:
        return call(name, "--root", f"{path}/metadata", *arguments, lines=lines)

    return run


def test_a_topics_life_from_creation_to_deletion(tool: Callable[..., Ended]) -> None:
    created = tool(
        "topics", "--create", "--topic", "life", "--replica-assignment", "2:1,3:2", "--config", "min.insync.replicas=2"
    )
    assert created == Ended(0, "Created topic life.\n", "")
    described = tool("topics", "--describe", "--topic", "life").out.splitlines()
    assert described[0].startswith("Topic: life\tTopicId: ")
    assert described[0].endswith("\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: min.insync.replicas=2")
    assert described[1].startswith("\tTopic: life\tPartition: 0\tLeader: 2\tReplicas: 2,1\tIsr: 2,1\t")
    assert tool("topics", "--alter", "--topic", "life", "--partitions", "3") == Ended(0, "", "")
    assert len(tool("topics", "--describe", "--topic", "life").out.splitlines()) == 4
    assert "life" in tool("topics", "--list").out.splitlines()
    assert tool("topics", "--delete", "--topic", "lif.") == Ended(0, "", "")
    assert "life" not in tool("topics", "--list").out.splitlines()
    assert tool("topics", "--delete", "--topic", "life", "--if-exists") == Ended(0, "", "")


def test_a_cluster_makes_the_topics_that_it_is_given(tool: Callable[..., Ended]) -> None:
    described = tool("topics", "describe", "made").out.splitlines()
    assert "PartitionCount: 2\tReplicationFactor: 3" in described[0]
    assert len(described) == 3


def test_what_is_typed_in_one_process_is_read_in_another(tool: Callable[..., Ended]) -> None:
    tool("topics", "--create", "--topic", "words", "--replication-factor", "3")
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "null.marker=NULL")
    assert tool("produce", "--topic", "words", *keyed, lines="a\tone\nb\ttwo\nNULL\tthree\n") == Ended(0, "", "")
    assert tool("produce", "--topic", "words", "--sync", lines="four") == Ended(0, "", "")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    consumed = tool("consume", "--topic", "words", "--from-beginning", "--max-messages", "4", *shown)
    assert consumed == Ended(
        0,
        "Offset:0\ta\tone\nOffset:1\tb\ttwo\nOffset:2\tnull\tthree\nOffset:3\tnull\tfour\n",
        "Processed a total of 4 messages\n",
    )
    one = tool("consume", "--topic", "words", "--partition", "0", "--offset", "2", "--timeout-ms", "1000")
    assert one == Ended(0, "three\nfour\n", "Processed a total of 2 messages\n")


def test_records_are_deleted_before_an_offset(tool: Callable[..., Ended], tmp_path: Path) -> None:
    tool("topics", "--create", "--topic", "old", "--replication-factor", "3")
    tool("produce", "--topic", "old", lines="a\nb\nc\n")
    file = tmp_path / "offsets.json"
    rows = [{"topic": "old", "partition": 0, "offset": 2}, {"topic": "none", "partition": 0, "offset": 1}]
    file.write_text(json.dumps({"partitions": rows, "version": 1}))
    deleted = tool("delete-records", "--offset-json-file", str(file))
    assert (deleted.code, deleted.err) == (0, "")
    assert deleted.out.splitlines()[:3] == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: old-0\tlow_watermark: 2",
    ]
    assert deleted.out.splitlines()[3].startswith("partition: none-0\terror: ")
    assert tool("consume", "--topic", "old", "--from-beginning", "--max-messages", "1").out == "c\n"


def test_a_leader_is_elected_where_that_is_needed(tool: Callable[..., Ended]) -> None:
    tool("topics", "--create", "--topic", "led", "--replica-assignment", "2:1")
    preferred = ("leader-election", "--election-type", "preferred")
    assert tool(*preferred, "--topic", "led", "--partition", "0") == Ended(
        0, "Valid replica already elected for partitions led-0\n", ""
    )
    assert tool(*preferred, "--topic", "led", "--partition", "7") == Ended(
        1,
        "Error completing leader election (PREFERRED) for partition: led-7: UNKNOWN_TOPIC_OR_PARTITION: "
        "No such partition as led-7\n",
        "1 replica(s) could not be elected\n",
    )
    assert tool("leader-election", "--election-type", "unclean", "--all-topic-partitions") == Ended(0, "", "")


def test_offsets_and_dumps_show_what_was_typed(tool: Callable[..., Ended], path: Path) -> None:
    tool("topics", "--create", "--topic", "looked", "--replication-factor", "3")
    tool("produce", "--topic", "looked", "--sync", lines="one\ntwo\n")
    assert tool("get-offsets", "--topic", "looked") == Ended(0, "looked:0:2\n", "")
    assert tool("get-offsets", "--topic-partitions", "look.*:0", "--time", "earliest").out == "looked:0:0\n"
    assert tool("get-offsets", "--topic", "looked", "--time", "-3").out in ("looked:0:0\n", "looked:0:1\n")
    replicas = ",".join(f"{path}/broker-{broker}/looked-0" for broker in (1, 2, 3))
    dumped = call("dump-log", "--files", replicas, "--print-data-log")
    assert (dumped.code, dumped.err) == (0, "")
    assert [dumped.out.count(f" payload: {word}\n") for word in ("one", "two")] == [3, 3]
    metadata = call("dump-log", "--files", f"{path}/metadata/__cluster_metadata-0", "--cluster-metadata-decoder")
    assert ' payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"looked","topicId":"' in metadata.out


def test_the_records_before_a_bad_line_are_kept(tool: Callable[..., Ended]) -> None:
    tool("topics", "--create", "--topic", "half")
    refused = tool("produce", "--topic", "half", "--property", "parse.key=true", lines="k\tgood\nbad\n")
    assert refused.code == 1
    assert "ERROR INVALID_RECORD: No key separator found on line number 2: 'bad'" in refused.err
    assert tool("consume", "--topic", "half", "--from-beginning", "--max-messages", "1").out == "good\n"


def test_a_record_larger_than_the_topic_takes_is_refused_and_the_rest_arrives(tool: Callable[..., Ended]) -> None:
    tool("topics", "--create", "--topic", "small", "--config", "max.message.bytes=1000")
    refused = tool("produce", "--topic", "small", lines="x" * 2000 + "\nfits\n")
    assert refused.code == 1
    assert "value: 2000 bytes with error: MESSAGE_TOO_LARGE: " in refused.err
    consumed = tool("consume", "--topic", "small", "--from-beginning", "--timeout-ms", "1000")
    assert consumed.out == "fits\n"


BAD_INPUT = [
    (
        "topics --describe --topic none",
        "UNKNOWN_TOPIC_OR_PARTITION: Topic 'none' does not exist as expected",
    ),
    (
        "topics --create --topic new --replication-factor 4",
        "INVALID_REPLICATION_FACTOR: Replication factor: 4 larger than available brokers: 3.",
    ),
    ("topics --create --topic a*b", "INVALID_TOPIC_EXCEPTION: Topic name is invalid: 'a*b' contains"),
    ("topics --create --topic new --config retention=1", "INVALID_CONFIG: Unknown topic config name: retention"),
    (
        "topics --create --topic new --config retention.ms=x",
        "INVALID_CONFIG: Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    ("topics --create --topic new --replica-assignment 1:9", "INVALID_REPLICA_ASSIGNMENT: The manual partition"),
    ("produce --topic none", "UNKNOWN_TOPIC_OR_PARTITION: topic 'none' does not exist"),
    ("produce --topic there --command-property ack=1", "INVALID_CONFIG: Unknown producer config name: ack"),
    ("consume --topic none", "UNKNOWN_TOPIC_OR_PARTITION: topic 'none' does not exist"),
    ("consume --topic there --partition 7", "UNKNOWN_TOPIC_OR_PARTITION: there-7: "),
    (
        "consume --topic there --partition 0 --offset 9",
        "OFFSET_OUT_OF_RANGE: there-0: offset 9 is outside [0, 0]",
    ),
]
"""Command line -> what follows `ERROR` on standard error."""


def test_bad_input_has_kafkas_name_and_changes_nothing(tool: Callable[..., Ended]) -> None:
    tool("topics", "--create", "--topic", "there")
    before = tool("topics", "--describe")
    for command, error in BAD_INPUT:
        ended = tool(*command.split(), lines="a line\n")
        assert (ended.code, f"ERROR {error}" in ended.err) == (1, True), (command, ended)
        expected = "Error while executing topic command : " if command.startswith("topics") else ""
        assert ended.out.startswith(expected)
        assert bool(ended.out) is bool(expected)
    assert tool("topics", "--describe") == before


def test_a_second_cluster_on_the_same_folder_is_refused(path: Path) -> None:
    ended = call("cluster", "--path", str(path), "--fetcher", "thread")
    assert (ended.code, ended.out) == (1, "")
    assert "ERROR KAFKA_STORAGE_ERROR: " in ended.err
    assert "another process runs this cluster" in ended.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--override", "num.partition=1"], "ERROR INVALID_CONFIG: Unknown broker config name: num.partition"),
        (["--brokers", "0"], "A cluster has at least 1 broker"),
    ],
)
def test_a_cluster_with_wrong_settings_makes_no_folder(tmp_path: Path, arguments: list[str], error: str) -> None:
    ended = call("cluster", "--path", str(tmp_path / "cluster"), "--fetcher", "thread", *arguments)
    assert (ended.code, ended.out, error in ended.err) == (1, "", True)
    assert not (tmp_path / "cluster").exists()


def test_a_root_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no cluster")
    for root in (tmp_path / "none", tmp_path / "file", tmp_path):
        ended = call("topics", "--root", str(root), "--list")
        assert (ended.code, "ERROR LOG_DIR_NOT_FOUND: " in ended.err) == (1, True), root


def test_the_log_outlives_the_process_that_ran_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster"
    root = ("--root", f"{path}/metadata")
    process = start_cluster(path)
    call("topics", *root, "--create", "--topic", "kept", "--replication-factor", "3")
    assert call("produce", *root, "--topic", "kept", lines="acknowledged\n").code == 0
    process.kill()
    process.communicate(timeout=WAIT_S)
    again = start_cluster(path)
    consumed = call("consume", *root, "--topic", "kept", "--from-beginning", "--max-messages", "1")
    again.terminate()
    assert again.wait(WAIT_S) == 0
    assert consumed == Ended(0, "acknowledged\n", "Processed a total of 1 messages\n")
    refused = call("produce", *root, "--topic", "kept", lines="refused\n")
    assert (refused.code, "ERROR BROKER_NOT_AVAILABLE: " in refused.err) == (1, True)
