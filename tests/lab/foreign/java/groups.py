"""Kafka's tools for groups."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.java.jvm import tool
from tests.lab.foreign.java.topics import WAIT_S
from tests.lab.foreign.python.clients import Confluent, Reader
from tests.lab.foreign.python.groups import poll_until
from tests.lab.foreign.python.records import KEPT, topic_of
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

CONSUMER_GROUPS, GROUPS = "consumer.group.ConsumerGroupCommand", "GroupsCommand"
PARTITIONS, COUNT = 2, 100
FIRST_MS = 1_700_000_000_000
PROTOCOLS = {"classic": {}, "consumer": {"group.protocol": "consumer"}}


def filled(served: Served) -> str:
    """A topic of two partitions, each with 100 records, one a second from `FIRST_MS`."""
    topic = topic_of(served, PARTITIONS, **KEPT)
    with Confluent().writer(served.bootstrap, {"acks": "all"}) as writer:
        for second in range(COUNT):
            for partition in range(PARTITIONS):
                writer.send(topic, b"%d" % second, partition, timestamp_ms=FIRST_MS + second * 1_000)
        writer.flush()
    return topic


def member(served: Served, topic: str, group: str, protocol: str) -> Reader:
    """A member that has read all and committed, and is alive."""
    reader = Confluent().reader(served.bootstrap, {"group.id": group, **PROTOCOLS[protocol]})
    reader.subscribe(topic)
    poll_until([reader], lambda seen: len(seen) >= COUNT * PARTITIONS, f"the records of {topic}")
    reader.commit()
    return reader


def rows(text: str) -> list[list[str]]:
    """A table's rows as words, without the header and empty lines."""
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("GROUP ")]


def show(served: Served) -> None:
    """List and describe groups of both kinds: states, types, offsets, members; delete them when they are empty."""
    topic = filled(served)
    for protocol in PROTOCOLS:
        group = fresh("shown")
        named = ("--describe", "--group", group)
        with member(served, topic, group, protocol):
            assert group in tool(served, CONSUMER_GROUPS, "--list").splitlines()
            listed = tool(served, CONSUMER_GROUPS, "--list", "--state", "stable", "--type", protocol)
            assert re.search(rf"^{group}\s+{protocol}\s+Stable\s*$", listed, re.IGNORECASE | re.MULTILINE), listed
            (state,) = rows(tool(served, CONSUMER_GROUPS, *named, "--state"))
            assert state[0] == group
            assert (state[-2], state[-1]) == ("Stable", "1"), state
            offsets = rows(tool(served, CONSUMER_GROUPS, *named, "--verbose"))
            assert len(offsets) == PARTITIONS, offsets
            assert all({topic, "100", "0"} <= set(row) for row in offsets), offsets
            (one,) = rows(tool(served, CONSUMER_GROUPS, *named, "--members", "--verbose"))
            assert {group, str(PARTITIONS), f"{topic}:0,1"} <= set(one), one
            text = tool(served, CONSUMER_GROUPS, "--delete", "--group", group)
            assert "GroupNotEmptyException" in text, text
        wait_until(
            lambda named=named: "Empty" in tool(served, CONSUMER_GROUPS, *named, "--state"), f"{group} is empty", WAIT_S
        )
        text = tool(served, CONSUMER_GROUPS, "--delete", "--group", group)
        assert f"Deletion of requested consumer groups ('{group}') was successful." in text, text
        assert group not in tool(served, CONSUMER_GROUPS, "--list").splitlines()
    text = tool(served, CONSUMER_GROUPS, "--describe", "--group", fresh("none"))
    assert "GroupIdNotFoundException" in text, text


def reset(served: Served) -> None:
    """Every form of --reset-offsets, for both kinds of groups, dry and executed; of members only when they left."""
    topic = filled(served)
    for protocol in PROTOCOLS:
        group = fresh("reset")
        reader = member(served, topic, group, protocol)
        text = tool(served, CONSUMER_GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest",
                    "--execute")  # fmt: skip
        assert f"the group '{group}' is inactive, but the current state is Stable" in text, text
        reader.close()
        reset_in_every_form(served, topic, group)
        delete_offsets(served, topic, group)


def reset_in_every_form(served: Served, topic: str, group: str) -> None:
    at_40_s = datetime.fromtimestamp(FIRST_MS / 1_000 + 40, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    age_s = int(datetime.now(UTC).timestamp() - FIRST_MS / 1_000)
    for form, expected in (
        (("--to-offset", "10"), 10),
        (("--to-current",), 10),
        (("--shift-by", "5"), 15),
        (("--shift-by", "-7"), 8),
        (("--to-datetime", at_40_s), 40),
        (("--to-earliest",), 0),
        (("--to-latest",), COUNT),
        (("--by-duration", f"PT{age_s - COUNT // 2}S"), None),
        (("--to-offset", "1000"), COUNT),
    ):
        before = committed(served, topic, group)
        everywhere = ("--group", group, "--topic", topic, *form)
        shown = offsets_of(tool(served, CONSUMER_GROUPS, "--reset-offsets", *everywhere, "--dry-run"), topic)
        assert committed(served, topic, group) == before
        done = offsets_of(tool(served, CONSUMER_GROUPS, "--reset-offsets", *everywhere, "--execute"), topic)
        after = committed(served, topic, group)
        if expected is None:
            assert all(0 < offset < COUNT for offset in after.values()), after
        else:
            assert shown == done == after == dict.fromkeys(range(PARTITIONS), expected), (form, shown, done, after)
    one = ("--group", group, "--topic", f"{topic}:1", "--to-offset", "20", "--execute")
    tool(served, CONSUMER_GROUPS, "--reset-offsets", *one)
    assert committed(served, topic, group) == {0: COUNT, 1: 20}
    exported = tool(served, CONSUMER_GROUPS, "--reset-offsets", "--group", group, "--all-topics", "--to-current",
                    "--export", "--dry-run")  # fmt: skip
    lines = [line for line in exported.splitlines() if topic in line]
    assert len(lines) == PARTITIONS, exported
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.csv"
        plan.write_text("".join(f"{line.rsplit(',', 1)[0]},33\n" for line in lines))
        tool(served, CONSUMER_GROUPS, "--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    assert committed(served, topic, group) == {0: 33, 1: 33}
    tool(served, CONSUMER_GROUPS, "--reset-offsets", "--all-groups", "--topic", topic, "--to-earliest", "--execute")
    assert committed(served, topic, group) == {0: 0, 1: 0}


def delete_offsets(served: Served, topic: str, group: str) -> None:
    text = tool(served, CONSUMER_GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert "Request succeeded for deleting offsets" in text, text
    assert committed(served, topic, group) == {1: 0}


def committed(served: Served, topic: str, group: str) -> dict[int, int]:
    """Committed offsets by partition, as --describe prints them."""
    found = rows(tool(served, CONSUMER_GROUPS, "--describe", "--group", group))
    of_topic = (row[row.index(topic) + 1 :] for row in found if topic in row)
    return {int(partition): int(offset) for partition, offset, *_ in of_topic if offset != "-"}


def offsets_of(text: str, topic: str) -> dict[int, int]:
    """New offsets by partition, as --reset-offsets prints them."""
    found: list[Sequence[str]] = [row for row in rows(text) if topic in row]
    return {int(row[row.index(topic) + 1]): int(row[row.index(topic) + 2]) for row in found}


def list_groups(served: Served) -> None:
    topic = filled(served)
    for protocol in PROTOCOLS:
        group = fresh("listed")
        with member(served, topic, group, protocol):
            text = tool(served, GROUPS, "--list", "--group-type", protocol)
            assert re.search(rf"^{group}\s+{protocol}\s+consumer\s*$", text, re.IGNORECASE | re.MULTILINE), text
            for option in (("--consumer",), ("--protocol", "consumer"), ()):
                assert group in tool(served, GROUPS, "--list", *option), option


CHECKS = {
    "kafka-consumer-groups: list, describe, delete": show,
    "kafka-consumer-groups: every form of --reset-offsets, --delete-offsets": reset,
    "kafka-groups": list_groups,
}
