"""Every tool over `--bootstrap-server` and over `--root`, against one cluster: the same output, the same exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.jobs.strata import modules
from stratalog.replication.metadata.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.storage.records import TopicPartition
from tests.waiting import wait_until

CONFIG = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RECORDS = 20
READ = "User:reader", "*", Operation.READ, Permission.ALLOW


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool printed, and its exit code."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Served:
    """A cluster by its metadata root and by its brokers' addresses."""

    root: str
    servers: str
    capsys: pytest.CaptureFixture[str] | None = None

    def say(self, way: str, words: str, *more: str) -> Said:
        """A tool's answer, with the cluster named in this way."""
        tool, *flags = words.split()
        assert self.capsys is not None
        self.capsys.readouterr()
        named = ("--root", self.root) if way == "root" else ("--bootstrap-server", self.servers)
        code = import_module(modules()[tool]).main([*named, *flags, *more])
        out, err = self.capsys.readouterr()
        return Said(code, out, err)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Topics `t` and `u`, records, a group with members' offsets, an open and an ended transaction, ACLs, configs."""
    path = tmp_path_factory.mktemp("both") / "c"
    with Cluster.start(path, 3, fetcher="thread", config=CONFIG, progress=None) as running:
        admin = Admin(running)
        placed = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
        topic = NewTopic("t", replica_assignment=placed, configs={"retention.ms": 7_000_000})
        admin.create_topics([topic, NewTopic("u", 1, 2)])
        fill(running)
        admin.alter_group_configs("g", {"consumer.session.timeout.ms": 50_000})
        admin.create_acls([AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, *READ)])
        wait_until(lambda: ends_are_published(admin), "all high watermarks")
        yield Served(running.root, running.bootstrap_servers)


def fill(running: Cluster) -> None:
    """Records, committed offsets, transactions."""
    with Producer(running, acks="all") as producer:
        for number in range(RECORDS):
            producer.send(
                "t", f"value {number}", f"key {number}", partition=number % 3, timestamp_ms=1_000 * number + 1
            )
        producer.flush()
    with Consumer(running, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        found = 0
        while found < RECORDS:
            found += len(consumer.poll(500))
        consumer.commit_sync()
    ended = Producer(running, transactional_id="ended")
    ended.init_transactions()
    for is_committed in (True, False):
        ended.begin_transaction()
        ended.send("u", "committed" if is_committed else "aborted").result()
        (ended.commit_transaction if is_committed else ended.abort_transaction)()
    ended.close()


def ends_are_published(admin: Admin) -> bool:
    described = admin.describe_topics()
    return all(len(each.isr) == len(each.replicas) for topic in described.values() for each in topic.partitions)


@pytest.fixture
def served(cluster: Served, capsys: pytest.CaptureFixture[str]) -> Served:
    return Served(cluster.root, cluster.servers, capsys)


SAME = [
    "topics list",
    "topics --list --exclude-internal --output json",
    "topics --describe",
    "topics --describe --topic t",
    "topics --describe --output json",
    "topics --describe --under-replicated-partitions",
    "topics --describe --at-min-isr-partitions",
    "topics --describe --topics-with-overrides",
    "topics --describe --topic none",
    "topics --delete --topic none",
    "configs --describe --topic t",
    "configs --describe --topic t --all",
    "configs --describe --topic none",
    "configs --describe --entity-type topics --output json",
    "configs --describe --entity-type brokers",
    "configs --describe --broker 1 --all",
    "configs --describe --broker 9",
    "configs --describe --broker-defaults --all",
    "configs --describe --entity-type groups",
    "configs --describe --group g --all",
    "configs --describe --entity-type users",
    "acls --list",
    "acls --list --topic t --output json",
    "acls --list --principal User:nobody",
    "get-offsets --topic t",
    "get-offsets --topic t --time earliest",
    "get-offsets --topic t --time -3 --output json",
    "get-offsets --topic t --time 5000",
    "get-offsets --topic t --time 99999999999999",
    "get-offsets --topic-partitions t:0-2,u",
    "get-offsets --topic none",
    "groups",
    "groups --list --state --type",
    "groups --list --state stable",
    "groups --list --output json",
    "groups describe g",
    "groups --describe --all-groups --members --verbose",
    "groups --describe --group g --state --verbose",
    "groups --describe --group g --output json",
    "groups --describe --group none",
    "groups --reset-offsets --group g --topic t --to-earliest --dry-run",
    "groups --reset-offsets --group g --topic t:0,1 --shift-by -2 --dry-run --export",
    "groups --reset-offsets --group g --topic t --to-datetime 1970-01-01T00:00:05.000 --dry-run",
    "groups --reset-offsets --group g --topic none --to-latest --dry-run",
    "lag",
    "lag g --output json",
    "lag --total",
    "transactions list",
    "transactions list --output json",
    "transactions describe-producers --topic t --partition 0",
    "transactions describe-producers --topic u --partition 0 --output json",
    "transactions find-hanging --topic u --max-transaction-timeout 0",
    "transactions describe --transactional-id none",
    "log-dirs",
    "log-dirs --describe --broker-list 1,3 --topic-list t",
    "log-dirs --describe --broker-list 9",
    "reassign-partitions --list",
    "reassign-partitions --list --output json",
    "leader-election --election-type preferred --all-topic-partitions",
    "leader-election --election-type preferred --topic t --partition 0",
    "leader-election --election-type preferred --topic none --partition 0",
    "consume t --from-beginning --max-messages 20 --property print.key=true --property print.offset=true",
    "consume t --partition 1 --offset 3 --max-messages 2",
    "consume u --from-beginning --timeout-ms 1500",
    "consume u --from-beginning --timeout-ms 1500 --isolation-level read_committed",
    "consume --include t|u --from-beginning --max-messages 22",
    "consume none --timeout-ms 500",
    "consume t --partition 0 --offset 99 --timeout-ms 500",
]


@pytest.mark.parametrize("words", SAME)
def test_both_ways_say_the_same(served: Served, words: str) -> None:
    by_root, over_wire = (served.say(way, words) for way in ("root", "wire"))
    if words.startswith("consume"):  # partitions of a poll come in any order
        by_root, over_wire = (
            Said(each.code, "".join(sorted(each.out.splitlines(True))), each.err) for each in (by_root, over_wire)
        )
    assert (over_wire.code, over_wire.out) == (by_root.code, by_root.out)
    assert over_wire.err.splitlines()[-1:] == by_root.err.splitlines()[-1:]


def test_a_transactions_description_is_the_same_but_for_its_age(served: Served) -> None:
    by_root, over_wire = (served.say(way, "transactions describe --transactional-id ended") for way in ("root", "wire"))
    assert by_root.code == 0
    assert re.sub(r"\d+", "N", over_wire.out) == re.sub(r"\d+", "N", by_root.out)


MOVE = '{"partitions": [{"topic": "NAME", "partition": 0, "replicas": [3,2,1]}], "version": 1}'
CHANGES = [
    ("topics create NAME -p 2 -r 3 -c retention.ms=5000", ()),
    ("topics --alter --topic NAME --partitions 4", ()),
    ("configs --alter --topic NAME --add-config max.message.bytes=5000", ()),
    ("configs --alter --topic NAME --delete-config retention.ms", ()),
    ("acls --add --allow-principal User:bob --operation Read --topic NAME", ()),
    ("acls --remove --allow-principal User:bob --operation Read --topic NAME --force", ()),
    ("configs --alter --group NAME --add-config consumer.session.timeout.ms=47000", ()),
    ("configs --alter --user NAME --add-config SCRAM-SHA-256=[iterations=4096,password=p]", ()),
    ("delete-records", ('{"partitions": [{"topic": "NAME", "partition": 0, "offset": 0}], "version": 1}',)),
    ("reassign-partitions --execute", (MOVE,)),
    ("reassign-partitions --verify --wait", (MOVE,)),
    ("leader-election --election-type preferred --topic NAME --partition 0", ()),
    ("topics --create --topic NAME", ()),
    ("topics --create --topic NAME --if-not-exists", ()),
    ("topics --alter --topic NAME --partitions 3", ()),
    ("configs --alter --topic NAME --add-config retention.ms=x", ()),
    ("topics --delete --topic NAME", ()),
]  # fmt: skip
FILE_FLAG = {"delete-records": "--offset-json-file", "reassign-partitions": "--reassignment-json-file"}


def test_changes_say_and_do_the_same(served: Served, tmp_path: Path) -> None:
    names = {"root": "aaa", "wire": "bbb"}
    for words, files in CHANGES:
        said: dict[str, Said] = {}
        for way, name in names.items():
            more: list[str] = []
            for content in files:
                file = tmp_path / f"{name}.json"
                file.write_text(content.replace("NAME", name))
                more = [FILE_FLAG[words.split()[0]], str(file)]
            found = served.say(way, words.replace("NAME", name), *more)
            said[way] = Said(found.code, found.out.replace(name, "NAME"), found.err.replace(name, "NAME"))
        assert said["wire"] == said["root"], words
        described = [served.say("root", f"topics --describe --topic {name}").out for name in names.values()]
        assert normal(described[1], "bbb") == normal(described[0], "aaa"), words


def normal(described: str, name: str) -> str:
    """A description without what differs between two topics: the id, and where brokers put replicas."""
    text = re.sub(r"TopicId: \S+", "", described.replace(name, "NAME"))
    return re.sub(r"(Leader|Replicas|Isr): [\d,]+", r"\1", text)


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
    ],
)
def test_what_is_on_storage_alone_says_so(served: Served, words: str, what: str) -> None:
    refused = served.say("wire", words)
    assert (refused.code, refused.out) == (1, "")
    assert f"--bootstrap-server {served.servers}: {what}" in refused.err or what in refused.err


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
    assert described["configs"] == {"retention.ms": "7000000"}
    assert TopicPartition("t", 0).topic == described["topic"]
