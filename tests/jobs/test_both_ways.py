"""Every tool over `--bootstrap-server` and over `--root`, against one cluster: the same output, the same exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from stratalog.jobs.strata import modules
from stratalog.server.cluster import Cluster
from tests.jobs.both_ways import CHANGES, SAME, Said, Served, answers, changed, descriptions, prepare

CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("both") / "c"
    with Cluster.start(path, 3, fetcher="thread", config=CONFIG, progress=None) as running:
        prepare(running)
        yield Served(running.root, running.bootstrap_servers)


@pytest.fixture
def served(cluster: Served, capsys: pytest.CaptureFixture[str]) -> Served:
    return Served(cluster.root, cluster.servers, capsys)


@pytest.mark.parametrize("words", SAME)
def test_both_ways_say_the_same(served: Served, words: str) -> None:
    by_root, over_wire = answers(served, words)
    assert (over_wire.code, over_wire.out) == (by_root.code, by_root.out)
    assert over_wire.err.splitlines()[-1:] == by_root.err.splitlines()[-1:]


def test_a_transactions_description_is_the_same_but_for_its_age(served: Served) -> None:
    by_root, over_wire = (served.say(way, "transactions describe --transactional-id ended") for way in ("root", "wire"))
    assert by_root.code == 0
    assert re.sub(r"\d+", "N", over_wire.out) == re.sub(r"\d+", "N", by_root.out)


def test_changes_say_and_do_the_same(served: Served, tmp_path: Path) -> None:
    for words, files in CHANGES:
        said = changed(served, words, files, tmp_path)
        assert said["wire"] == said["root"], words
        if "--delete " not in words:  # a deletion goes on behind the answer
            described = descriptions(served)
            assert described[1] == described[0], words
    assert {"aaa", "bbb"} & set(served.say("wire", "topics list").out.split()) == set()


def test_offsets_of_a_group_are_reset_and_deleted(served: Served) -> None:
    for way in ("root", "wire"):
        made = served.say(way, f"groups --reset-offsets --group new-{way} --topic t --to-offset 2 --execute")
        assert made.code == 0
        described = [
            served.say(each, f"groups --describe --group new-{way} --output json").out for each in ("root", "wire")
        ]
        assert described[0] == described[1]
        assert [json.loads(line)["currentOffset"] for line in described[0].splitlines()] == [2, 2, 2]
        removed = served.say(way, f"groups --delete-offsets --group new-{way} --topic t:0")
        assert (removed.code, removed.err) == (0, "")
        assert served.say(way, f"groups --delete --group new-{way}").code == 0
        assert f"new-{way}" not in served.say("wire", "groups").out


def test_lines_that_were_typed_over_the_wire_are_read_from_storage(
    served: Served, monkeypatch: pytest.MonkeyPatch, typed: Callable[[str], None]
) -> None:
    served.say("wire", "topics create lines -p 1 -r 3")
    typed("one\ntwo\n")
    assert served.say("wire", "produce lines") == Said(0, "", "")
    typed("three\n")
    assert served.say("root", "produce lines --sync") == Said(0, "", "")
    for way in ("root", "wire"):
        found = served.say(way, "consume lines --from-beginning --max-messages 3")
        assert found == Said(0, "one\ntwo\nthree\n", "Processed a total of 3 messages\n")
    grouped = served.say("wire", "consume lines --group readers --from-beginning --max-messages 2")
    assert grouped.out == "one\ntwo\n"
    assert served.say("wire", "consume lines --group readers --from-beginning --max-messages 1").out == "three\n"
    refused = served.say("wire", "produce none")
    assert (refused.code, "UNKNOWN_TOPIC_OR_PARTITION" in refused.err) == (1, True)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Sets what standard input has."""

    def put(lines: str) -> None:
        file = tmp_path / "typed"
        file.write_text(lines)
        monkeypatch.setattr("sys.stdin", file.open())

    return put


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("who-led --offset t:0:1", "the history of leaders is on storage alone"),
        ("delete-where --topic t --report 1", "on storage alone"),
        ("replica-verification --once", "the replicas that it compares are on storage alone"),
        ("metadata backup --output -", "the metadata log is on storage alone"),
        ("typed-table --topic t --table x", "what Spark reads is on storage alone"),
    ],
)
def test_what_is_on_storage_alone_says_so(served: Served, words: str, what: str) -> None:
    refused = served.say("wire", words)
    assert (refused.code, refused.out) == (1, "")
    assert f"--bootstrap-server {served.servers}: " in refused.err
    assert what in refused.err


def test_an_address_that_does_not_answer_says_what_was_tried_and_for_how_long(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    main = import_module(modules()["topics"]).main
    assert main(["--bootstrap-server", "127.0.0.1:1,127.0.0.1:2", "--list", "--command-config", str(config)]) == 1
    error = capsys.readouterr().err
    assert re.search(r"BROKER_NOT_AVAILABLE: no broker answered within 0\.\d s; tried 127\.0\.0\.1:1: ", error)
    assert "127.0.0.1:2: cannot be reached: " in error
    assert main(["--bootstrap-server", "here", "--list"]) == 1
    assert "Invalid url in bootstrap.servers: here; it is host:port" in capsys.readouterr().err


def test_a_topic_is_described_by_its_id(served: Served) -> None:
    found = re.search(r"TopicId: (\S+)", served.say("root", "topics --describe --topic t").out)
    assert found is not None
    by_root, over_wire = (served.say(way, f"topics --describe --topic-id {found[1]}") for way in ("root", "wire"))
    assert by_root == over_wire
    assert by_root.code == 0


def test_partitions_of_the_cluster_are_where_they_are(served: Served) -> None:
    """The image that a client makes of brokers' answers has what storage has."""
    described = json.loads(served.say("wire", "topics --describe --topic t --output json").out)
    assert [each["replicas"] for each in described["partitions"]] == [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    assert described["configs"] == {"retention.ms": "-1"}
