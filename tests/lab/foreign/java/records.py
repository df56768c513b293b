"""Kafka's tools that write and read records, and that move and measure them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.java.jvm import tool
from tests.lab.foreign.java.topics import json_file
from tests.lab.foreign.python.records import topic_of
from tests.lab.foreign.served import Served

PRODUCER, CONSUMER = "ConsoleProducer", "consumer.ConsoleConsumer"
OFFSETS, DELETE = "GetOffsetShell", "DeleteRecordsCommand"
ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
COUNT, TIMEOUT_MS = 200, 30_000


def write_lines(served: Served, topic: str, lines: Iterable[str], *arguments: object) -> None:
    tool(served, PRODUCER, "--topic", topic, *arguments, given="".join(f"{line}\n" for line in lines))


def read_lines(served: Served, topic: str, count: int, *arguments: object) -> list[str]:
    reading = ("--topic", topic, "--max-messages", count, "--timeout-ms", TIMEOUT_MS)
    lines = tool(served, CONSUMER, *reading, *arguments).splitlines()
    assert len(lines) == count, lines
    return lines


def console(served: Served) -> None:
    """Keys, headers and partitions; read from the beginning, from an offset, by a group that continues."""
    topic, group = topic_of(served), fresh("group")
    parsing = [f"--reader-property={each}" for each in ("parse.key=true", "parse.headers=true", "key.separator=|")]
    lines = [f"source:console\tkey-{number % 7}|value-{number}" for number in range(COUNT)]
    write_lines(served, topic, lines, *parsing)
    shown = ("key", "headers", "partition", "offset")
    printing = [f"--formatter-property=print.{each}=true" for each in shown]
    found = read_lines(served, topic, COUNT, "--from-beginning", *printing)
    split = [line.split("\t") for line in found]
    assert {len(each) for each in split} == {5}, found[:3]
    assert {each[2] for each in split} == {"source:console"}, found[:3]
    assert sorted(tuple(each[3:]) for each in split) == sorted(
        (f"key-{number % 7}", f"value-{number}") for number in range(COUNT)
    )
    places = {(each[0], each[1]) for each in split}
    assert len(places) == COUNT
    ends = ends_of(served, topic)
    partition = max(ends, key=lambda each: ends[each])
    tail = read_lines(served, topic, 5, "--partition", partition, "--offset", ends[partition] - 5)
    assert len(tail) == 5
    for protocol in ("classic", "consumer"):
        joined = ("--group", f"{group}-{protocol}", "--command-property", f"group.protocol={protocol}")
        halves = [read_lines(served, topic, COUNT // 2, *joined, "--from-beginning") for _ in range(2)]
        assert sorted(halves[0] + halves[1]) == sorted(f"value-{number}" for number in range(COUNT)), protocol


def console_codecs(served: Served) -> None:
    """Every codec and acks of the console producer, one topic."""
    topic, ways = topic_of(served), []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for acks in ("all", "1", "0"):
            ways.append(f"{codec}-{acks}")
            configs = (f"--command-property=acks={acks}", f"--command-property=enable.idempotence={acks == 'all'}")
            write_lines(served, topic, [ways[-1]] * 3, "--compression-codec", codec, *configs)
    found = sorted(read_lines(served, topic, 3 * len(ways), "--from-beginning"))
    assert found == sorted(3 * ways), found


def verifiable(served: Served) -> None:
    """The producer reports each record acknowledged; the consumer, of either protocol, that it read and committed."""
    topic = topic_of(served)
    text = tool(served, "VerifiableProducer", "--topic", topic, "--max-messages", COUNT, "--acks", -1, alone=True)
    events = json_lines(text)
    acked = [each for each in events if each["name"] == "producer_send_success"]
    assert sorted(int(each["value"]) for each in acked) == list(range(COUNT)), text
    (summary,) = (each for each in events if each["name"] == "tool_data")
    assert (summary["sent"], summary["acked"]) == (COUNT, COUNT), summary
    for protocol in ("classic", "consumer"):
        group = fresh("verified")
        reading = ("--topic", topic, "--group-id", group, "--group-protocol", protocol)
        text = tool(
            served, "VerifiableConsumer", *reading, "--max-messages", COUNT, "--reset-policy", "earliest", "--verbose"
        )
        events = json_lines(text)
        places = {(each["partition"], each["offset"]) for each in events if each["name"] == "record_data"}
        assert len(places) == COUNT, text
        commits = [each for each in events if each["name"] == "offsets_committed"]
        assert commits, text
        assert all(each["success"] for each in commits), commits
        assert sum(each["offset"] for each in commits[-1]["offsets"]) <= COUNT


def json_lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def ends_of(served: Served, topic: str, time: str = "latest") -> dict[int, int]:
    text = tool(served, OFFSETS, "--topic", topic, "--time", time)
    found = re.findall(rf"^{re.escape(topic)}:(\d+):(-?\d*)$", text, re.MULTILINE)
    return {int(partition): int(offset) for partition, offset in found if offset}


def get_offsets(served: Served) -> None:
    """Latest, earliest, with the largest timestamp, by a time; by patterns of topics and partitions."""
    topic = topic_of(served)
    lines = [f"{number}" for number in range(COUNT)]
    write_lines(served, topic, lines, "--command-property", "linger.ms=5")
    assert sum(ends_of(served, topic).values()) == COUNT
    assert ends_of(served, topic, "earliest") == dict.fromkeys(range(3), 0)
    newest = ends_of(served, topic, "max-timestamp")
    assert newest
    assert all(0 <= offset < COUNT for offset in newest.values())
    assert ends_of(served, topic, "-4") == dict.fromkeys(range(3), 0)
    assert sum(ends_of(served, topic, "1").values()) == 0
    text = tool(served, OFFSETS, "--topic-partitions", f"{topic}:0,{topic[:-1]}.:2", "--exclude-internal-topics")
    assert [line.rsplit(":", 1)[0] for line in text.splitlines()] == [f"{topic}:0", f"{topic}:2"], text


def delete_records(served: Served) -> None:
    topic = topic_of(served, 2)
    amount = ("--num-records", COUNT, "--record-size", 10, "--throughput", -1)
    spread = f"partitioner.class={ROUND_ROBIN}"
    tool(served, "ProducerPerformance", "--topic", topic, *amount, "--command-property", spread)
    ends = ends_of(served, topic)
    assert all(ends.values()), ends
    parts = [{"topic": topic, "partition": 0, "offset": 5}, {"topic": topic, "partition": 1, "offset": -1}]
    with json_file({"version": 1, "partitions": parts}) as named:
        text = tool(served, DELETE, "--offset-json-file", named)
    assert f"partition: {topic}-0\tlow_watermark: 5" in text, text
    assert f"partition: {topic}-1\tlow_watermark: {ends[1]}" in text, text
    assert ends_of(served, topic, "earliest") == {0: 5, 1: ends[1]}
    with json_file({"version": 1, "partitions": [{**parts[0], "offset": COUNT + 1}]}) as named:
        text = tool(served, DELETE, "--offset-json-file", named)
    assert "OffsetOutOfRangeException" in text, text


def measure(served: Served) -> None:
    """producer-perf (also with transactions), consumer-perf, e2e-latency."""
    topic = topic_of(served)
    amount = ("--topic", topic, "--num-records", 1_000, "--record-size", 100, "--throughput", -1)
    assert "1000 records sent" in tool(served, "ProducerPerformance", *amount)
    in_transactions = ("--transactional-id", fresh("txn"), "--transaction-duration-ms", 50)
    text = tool(served, "ProducerPerformance", *amount, *in_transactions)
    assert "1000 records sent" in text, text
    text = tool(served, "ConsumerPerformance", "--topic", topic, "--num-records", 2_000, "--timeout", TIMEOUT_MS)
    header, row = text.strip().splitlines()[-2:]
    found = dict(zip(header.split(", "), row.split(", "), strict=True))
    assert float(found["data.consumed.in.nMsg"]) >= 2_000, text
    text = tool(
        served, "EndToEndLatency", "--topic", fresh("e2e"), "--num-records", 100, "--producer-acks", "all",
        "--record-size", 100,
    )  # fmt: skip
    assert re.search(r"Avg latency: [\d.]+ ms", text), text


CHECKS = {
    "kafka-console-producer, -consumer: keys, headers, partitions, offsets, both kinds of groups": console,
    "kafka-console-producer: 5 codecs, acks all, 1 and 0": console_codecs,
    "kafka-verifiable-producer, -consumer, both kinds of groups": verifiable,
    "kafka-get-offsets": get_offsets,
    "kafka-delete-records": delete_records,
    "kafka-producer-perf-test, -consumer-perf-test, -e2e-latency": measure,
}
