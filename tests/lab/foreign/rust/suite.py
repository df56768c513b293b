"""The checks of clients in Rust."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import confluent_kafka
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError

from tests.lab.foreign.checks import Check, Suite, fresh
from tests.lab.foreign.compiled import ProgramError
from tests.lab.foreign.node.security import settings
from tests.lab.foreign.python.kafka_python_admin import listed
from tests.lab.foreign.python.records import CODECS, KEPT, topic_of
from tests.lab.foreign.rust import security
from tests.lab.foreign.rust.program import RUST, version
from tests.lab.foreign.security.credentials import LISTENERS, remove_secrets
from tests.lab.foreign.served import Served
from tests.lab.real.harness.broker_processes import BROKERS
from tests.waiting import wait_until

RSKAFKA, SAMSA = "rskafka", "samsa"
SAMSA_CODECS = ("none", "gzip", "snappy")
"""Those that samsa writes as Kafka reads them."""
GROUP_PARTITIONS = 3
MEMBER_TRIES, MEMBER_ENDED = 3, "a member: ParsingError"
STABLE = 40
"""Records before an open transaction."""
MOVES, MORE, MOVE_S_MAX = 3, 20, 60
"""How often a leader moves, and after how many more records."""

Run = Callable[[Served], None]


def do(client: str, program: str, partitions: int, served: Served, **given: str) -> None:
    """Run a program with a new topic and names for whatever else it makes."""
    names = {name: fresh(name) for name in ("group", "new")}
    RUST.run(client, program, served.bootstrap, topic=topic_of(served, partitions, **KEPT), **names, **given)


def be_a_member(program: str, served: Served) -> None:
    """Again, with another group, when a member of samsa's has ended because the group's coordinator moved.

    It cannot parse a SyncGroup response with an error, such as NOT_COORDINATOR, from whatever broker.
    """
    for _ in range(MEMBER_TRIES - 1):
        try:
            return do(SAMSA, program, GROUP_PARTITIONS, served)
        except ProgramError as error:
            if MEMBER_ENDED not in str(error):
                raise
    return do(SAMSA, program, GROUP_PARTITIONS, served)


def read_what_is_stable(served: Served) -> None:
    """rskafka reads what is before the first open transaction. No further: it cannot read a transaction's marker."""
    topic = topic_of(served, 1)
    plain = {"bootstrap.servers": served.bootstrap}
    written = confluent_kafka.Producer(plain)
    open_one = confluent_kafka.Producer({**plain, "transactional.id": fresh("id")})
    open_one.init_transactions()
    for number in range(STABLE):
        written.produce(topic, str(number))
    written.flush()
    open_one.begin_transaction()
    open_one.produce(topic, "not committed")
    open_one.flush()
    written.produce(topic, "behind it")
    written.flush()
    RUST.run(RSKAFKA, "stable", served.bootstrap, topic=topic, stable=str(STABLE))
    open_one.abort_transaction()


def write_while_the_leader_moves(served: Served) -> None:
    topic = topic_of(served, 1, **KEPT)
    partition = TopicPartition(topic, 0)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        stop = Path(folder) / "stop"
        try:
            writing = pool.submit(RUST.run, RSKAFKA, "moved", served.bootstrap, topic=topic, stop=str(stop))
            with closing(KafkaAdminClient(bootstrap_servers=served.bootstrap)) as admin:
                for _ in range(MOVES):
                    move(admin, partition, writing)
        finally:
            stop.touch()
        writing.result()


def move(admin: KafkaAdminClient, partition: TopicPartition, writing: Future[None]) -> None:
    """Once some more is written, one of the two other brokers leads the partition."""
    begin, leader = end_of(admin, partition), leader_of(admin, partition)
    wait_until(lambda: writing.done() or end_of(admin, partition) > begin + MORE, "more records", MOVE_S_MAX)
    others = [each for each in BROKERS if each != leader]
    assert admin.alter_partition_reassignments({partition: others}) == {partition: None}
    wait_until(lambda: writing.done() or leader_of(admin, partition) in others, "another leader", MOVE_S_MAX)
    assert not writing.done(), writing.exception()


def end_of(admin: KafkaAdminClient, partition: TopicPartition) -> int:
    """-1 where a new leader does not know it yet."""
    try:
        return listed(admin, partition, OffsetSpec.LATEST)
    except KafkaError as error:
        if not error.retriable:
            raise
        return -1


def leader_of(admin: KafkaAdminClient, partition: TopicPartition) -> int:
    (topic,) = admin.describe_topics([partition.topic])
    (found,) = (each for each in topic["partitions"] if each["partition_index"] == partition.partition)
    return int(found["leader_id"])


def rskafka() -> dict[str, Run]:
    found: dict[str, Run] = {
        f"produce with {codec}, acks=all, and read by assignment: null keys and values, headers, timestamps": partial(
            do, RSKAFKA, "produce", 3, codec=codec
        )
        for codec in CODECS
    }
    return found | {
        "BatchProducer: records of many tasks, side by side": partial(do, RSKAFKA, "batch", 1),
        "read by assignment: from an offset, from a time, ends": partial(do, RSKAFKA, "assign", 1),
        "StreamConsumer: from the start, from an offset, from the end": partial(do, RSKAFKA, "stream", 1),
        "produce while the leader moves, three times: each record is where the client was told": (
            write_while_the_leader_moves
        ),
        "a fetch waits for a record": partial(do, RSKAFKA, "wait", 1),
        "read_committed: up to the last stable offset": read_what_is_stable,
        "ControllerClient: create, list and delete topics, refusals": partial(do, RSKAFKA, "topics", 1),
        "a topic is created by a request for its metadata": partial(do, RSKAFKA, "auto", 1),
        "delete records": partial(do, RSKAFKA, "delete-records", 1),
        "errors: offsets and partitions that are not there, a wrong name, a record that is too large": partial(
            do, RSKAFKA, "errors", 1
        ),
        **security.checks(RSKAFKA),
    }


def samsa() -> dict[str, Run]:
    found: dict[str, Run] = {
        f"produce with {codec}, acks=1 and 0, and read by assignment; headers, read by rskafka": partial(
            do, SAMSA, "produce", 3, codec=codec
        )
        for codec in SAMSA_CODECS
    }
    found["read what rskafka writes"] = partial(do, SAMSA, "be-read", 3)
    found["read by assignment: from an offset, from a time, ends"] = partial(do, SAMSA, "assign", 1)
    for codec in CODECS:
        if codec not in SAMSA_CODECS:
            does = f"produce with {codec}, as samsa writes it: refused, nothing is stored"
            found[does] = partial(do, SAMSA, "refused-codec", 1, codec=codec)
    return found | {
        "classic groups, roundrobin: members join, and one is missed": partial(be_a_member, "share"),
        "classic groups: commit, and go on after a restart": partial(be_a_member, "go-on"),
        "classic groups: requests, one by one": partial(do, SAMSA, "requests", GROUP_PARTITIONS),
        "create, describe and delete topics, refusals": partial(do, SAMSA, "topics", 1),
        "errors: a topic that is not there": partial(do, SAMSA, "unknown-topic", 1),
        "errors: a wrong name, a partition that is not there, a record that is too large": partial(
            do, SAMSA, "errors", 1
        ),
    }


CHECKS = {RSKAFKA: rskafka, SAMSA: samsa}


def suite() -> Suite:
    """Without checks, and with the reason, where cargo is not there."""
    if not RUST.can_be_built():
        return Suite({}, (), left_out=RUST.left_out)
    RUST.build()
    checks = [Check(client, does, run) for client, found in CHECKS.items() for does, run in found().items()]
    versions = {client: version(client) for client in CHECKS}
    return Suite(versions, tuple(checks), settings(), LISTENERS, remove_secrets)
