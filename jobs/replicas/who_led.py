"""The broker that led a partition when an offset was written, over all of the cluster's past. Kafka has no such tool.

I/O: the metadata log, its history table, the leader's table and progress object.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from stratalog import LeaderOfOffset, StratalogError, TopicPartition
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule
from stratalog.jobs.command.opened import storage_admin
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError, complain
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words

PURPOSE = "Show which broker led a partition when an offset was written, and when it may have been acknowledged."
EPILOG = """examples (ROOT is the metadata root that `strata cluster` printed):
  {prog} --root ROOT --offset orders:3:812
  {prog} --root ROOT --offset orders:3:812 --offset orders:4:77
  {prog} --root ROOT --offset orders:3:812 --topic-id 5d41402abc4b2a76b9719d911017c592

A line for each offset: the broker and leader epoch under which the record was written, the epoch's first known time and
its last ISR. The leader's log tells the epoch; for an offset below its start, and for a topic that is gone, the history
does.

An acknowledgement to acks=all is not stored. It came in the epoch of the record or in a later one, at the latest in the
one whose high watermark is known to be above the offset. To acks=1 it came in the epoch of the record.

exit code: 0; 1 when an offset has no answer, with a line on standard error
"""


# fmt: off
FLAGS = {**CLUSTER, "which offsets": (
    Flag("offset", "TOPIC:PARTITION:OFFSET", "REQUIRED: The offset; may be repeated.", is_repeated=True),
    Flag("topic-id", "ID", "The id of a topic that is gone; if not given, the newest topic of the name is meant."),
)}
# fmt: on


def place(text: str) -> tuple[TopicPartition, int]:
    """The partition and the offset of `topic:partition:offset`. UsageError for anything else."""
    topic, *numbers = text.split(":")
    if not topic or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise UsageError(f"--offset {text}: expected TOPIC:PARTITION:OFFSET, such as orders:3:812")
    return TopicPartition(topic, int(numbers[0])), int(numbers[1])


def answer_line(found: LeaderOfOffset) -> str:
    """The line about one offset."""
    since = datetime.fromtimestamp(found.since_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    unsure = ",".join(map(str, found.unsure_epochs))
    return "\t".join(
        (
            f"{found.topic_partition.topic}:{found.topic_partition.partition}:{found.offset}",
            f"Leader: {found.leader}",
            f"LeaderEpoch: {found.leader_epoch}" + (f" (or of {unsure}, whose start is not known)" if unsure else ""),
            f"Since: {since}",
            f"Isr: {','.join(map(str, found.isr))}",
            f"Acknowledged: {acknowledged(found)}",
            f"TopicId: {found.topic_id}",
        )
    )


def acknowledged(found: LeaderOfOffset) -> str:
    """What is known of an acknowledgement to `acks=all`."""
    if found.acknowledged_by_epoch is None:
        return "not known to be" if found.is_in_log else "not known, as no leader's log could be read"
    if found.acknowledged_by_epoch == found.leader_epoch:
        return f"in leader epoch {found.leader_epoch}"
    return f"in one of the leader epochs {found.leader_epoch} to {found.acknowledged_by_epoch}"


def who_led(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    places = [place(text) for text in given.offset]
    admin, code = storage_admin(given, "the history of leaders is"), DONE
    for topic_partition, offset in places:
        try:
            print(answer_line(admin.who_led(topic_partition, offset, given.topic_id)))
        except StratalogError as reason:
            complain(str(reason))
            code = FAILED
    return code


main = Command("who-led", PURPOSE, EPILOG, FLAGS, who_led, Rule.required("offset"), Words(values=("offset",)))
