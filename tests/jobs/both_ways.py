"""One cluster by its metadata root and by its brokers' addresses, and command lines that both must answer alike."""

from __future__ import annotations

import re
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
from stratalog.server.bootstrap import RunningCluster
from tests.waiting import wait_until

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
    login: tuple[str, ...] = ()

    def say(self, way: str, words: str, *more: str) -> Said:
        """A tool's answer, with the cluster named in this way."""
        tool, *flags = words.split()
        assert self.capsys is not None
        self.capsys.readouterr()
        named = ("--root", self.root) if way == "root" else ("--bootstrap-server", self.servers)
        named = (*named, *self.login)
        code = import_module(modules()[tool]).main([*named, *flags, *more])
        out, err = self.capsys.readouterr()
        return Said(code, out, err)


def prepare(running: RunningCluster) -> None:
    """Topics `t` and `u`, records of long ago, a group's offsets, transactions, ACLs, configs of a group."""
    admin = Admin(running.root)
    placed = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    topic = NewTopic("t", replica_assignment=placed, configs={"retention.ms": -1})
    admin.create_topics([topic, NewTopic("u", 1, 2)])
    fill(running)
    admin.alter_group_configs("g", {"consumer.session.timeout.ms": 50_000})
    admin.create_acls([AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, *READ)])
    wait_until(lambda: all_are_in_sync(admin), "all replicas in sync")


def fill(running: RunningCluster) -> None:
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


def all_are_in_sync(admin: Admin) -> bool:
    described = admin.describe_topics()
    return all(len(each.isr) == len(each.replicas) for topic in described.values() for each in topic.partitions)


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
    "configs --describe --entity-type clients",
    "configs --describe --entity-type users --entity-type clients",
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
    "consume u --from-beginning --max-messages 2",
    "consume u --from-beginning --max-messages 1 --isolation-level read_committed",
    "consume --include t|u --from-beginning --max-messages 22",
    "consume none --timeout-ms 500",
    "consume t --partition 0 --offset 99 --timeout-ms 500",
]


def answers(served: Served, words: str) -> tuple[Said, Said]:
    """By the root, and over the wire; of a consumer in one order, since partitions of a poll come in any."""
    found = [served.say(way, words) for way in ("root", "wire")]
    if words.startswith("consume"):
        found = [Said(each.code, "".join(sorted(each.out.splitlines(True))), each.err) for each in found]
    return found[0], found[1]


MOVE = '{"partitions": [{"topic": "NAME", "partition": 0, "replicas": [3,2,1]}], "version": 1}'
CHANGES = [
    ("topics create NAME --replica-assignment 1:2:3,2:3:1 -c retention.ms=5000", ()),
    ("topics --alter --topic NAME --partitions 4", ()),
    ("configs --alter --topic NAME --add-config max.message.bytes=5000", ()),
    ("configs --alter --topic NAME --delete-config retention.ms", ()),
    ("acls --add --allow-principal User:bob --operation Read --topic NAME", ()),
    ("acls --remove --allow-principal User:bob --operation Read --topic NAME --force", ()),
    ("configs --alter --group NAME --add-config consumer.session.timeout.ms=47000", ()),
    ("configs --alter --user NAME --client c --add-config producer_byte_rate=2000000,request_percentage=30", ()),
    ("configs --alter --user NAME --client c --delete-config request_percentage", ()),
    ("configs --alter --client NAME --add-config producer_byte_rate=-1", ()),
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
NAMES = {"root": "aaa", "wire": "bbb"}
FILE_FLAG = {"delete-records": "--offset-json-file", "reassign-partitions": "--reassignment-json-file"}


def changed(served: Served, words: str, files: tuple[str, ...], folder: Path) -> dict[str, Said]:
    """What both ways say to a change, each of a topic of its own, whose name is NAME in the answer."""
    said: dict[str, Said] = {}
    for way, name in NAMES.items():
        more: list[str] = []
        for content in files:
            file = folder / f"{name}.json"
            file.write_text(content.replace("NAME", name))
            more = [FILE_FLAG[words.split(maxsplit=1)[0]], str(file)]
        found = served.say(way, words.replace("NAME", name), *more)
        said[way] = Said(found.code, found.out.replace(name, "NAME"), found.err.replace(name, "NAME"))
    return said


def descriptions(served: Served) -> list[str]:
    """Of both topics."""
    found = [(name, served.say("root", f"topics --describe --topic {name}").out) for name in NAMES.values()]
    return [normal(text, name) for name, text in found]


def normal(described: str, name: str) -> str:
    """A description without what differs between two topics: the id, and where brokers put replicas."""
    text = re.sub(r"TopicId: \S+", "", described.replace(name, "NAME"))
    return re.sub(r"(Leader|Replicas|Isr): [\d,]+", r"\1", text)
