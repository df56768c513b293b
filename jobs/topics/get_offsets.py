"""`kafka-get-offsets` for stratalog: offsets of partitions by place or time, as `topic:partition:offset`.

I/O: the metadata log, leaders' progress objects and data files; or brokers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from stratalog import OffsetSpec, StratalogError, TopicPartition
from stratalog.clients.client_view import ClientView
from stratalog.jobs.command.arguments import CLUSTER, client_properties, offset_spec, timeout_ms
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.output import JSON, OUTPUT, json_text
from stratalog.jobs.command.partition_filter import PartitionFilter
from stratalog.jobs.command.terminal import DONE, UsageError, complain
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.replication.internal_topics import is_internal
from stratalog.server.offset_spec import UNKNOWN_OFFSET, ListedOffset

PURPOSE = "An interactive shell for getting topic-partition offsets."
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --topic-partitions 'access-.*:0-3,errors:1'
  {prog} --root ROOT --topic events --time earliest
  {prog} --root ROOT --topic events --partitions 0,2 --time 1570793423501

Each line is topic:partition:offset. A partition without a record at or after the time has no line; one that cannot
be asked is named on standard error. exit code: 0; 1 when nothing matches or the command line is wrong
"""


# fmt: off
FLAGS = {**CLUSTER, "which offsets": (
    Flag("topic-partitions", "PATTERNS", "Comma separated list of topic-partition patterns to get the offsets for, "
         "with the format of 'topic:partition'. The 'topic' part is a regular expression or may be omitted to only "
         "specify the partitions; the 'partition' part may be: a number, a range 'NUMBER-NUMBER' (lower inclusive, "
         "upper exclusive), 'NUMBER-' or '-NUMBER', or it may be omitted with the colon."),
    Flag("topic", "TOPIC", "The topic to get the offsets for. It also accepts a regular expression. If not present, "
         "all authorized topics are queried.", letter="t"),
    Flag("partitions", "IDS", "Comma separated list of partition ids to get the offsets for. If not present, all "
         "partitions of the authorized topics are queried."),
    Flag("time", "TIME", "Timestamp of the offsets before that: -1 or latest (the default) / -2 or earliest / -3 or "
         "max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or milliseconds "
         "since 1970: the first record at or after that time.", default="latest"),
    OUTPUT,
    switch("exclude-internal-topics", "By default, internal topics are shown."),
)}
RULES = Rule.not_with("topic-partitions", "topic partitions", "--topic-partitions cannot be used with --topic "
                      "or --partitions")
# fmt: on


def selected(view: ClientView, wanted: PartitionFilter, *, exclude_internal: bool) -> list[TopicPartition]:
    """The partitions that the flags name, in order. UsageError when there are none."""
    topics = [topic for topic in view.topics() if not (exclude_internal and is_internal(topic))]
    found = [partition for topic in topics for partition in view.partitions(topic) if wanted.allows(partition)]
    if not found:
        raise UsageError("Could not match any topic-partitions with the specified filters")
    return found


def offsets_of(
    view: ClientView, partitions: Sequence[TopicPartition], spec: OffsetSpec, wait_ms: int
) -> Iterator[tuple[TopicPartition, ListedOffset]]:
    """The offset of each partition that has such a one; leaders are waited for `wait_ms` in all."""
    deadline_ms = view.clock.monotonic_ms() + wait_ms
    for topic_partition in partitions:
        try:
            left_ms = max(0, deadline_ms - view.clock.monotonic_ms())
            listed = view.offsets.list_offset(topic_partition, spec, left_ms)
        except StratalogError as reason:
            complain(f"Skip getting offsets for topic-partition {topic_partition} due to error: {reason}")
            continue
        if listed.offset != UNKNOWN_OFFSET:
            yield topic_partition, listed


def shown(topic_partition: TopicPartition, listed: ListedOffset, form: str) -> str:
    """The line about one partition."""
    topic, partition = topic_partition
    if form == JSON:
        return json_text({"topic": topic, "partition": partition, "offset": listed.offset})
    return f"{topic}:{partition}:{listed.offset}"


def get_offsets(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    wanted = (
        PartitionFilter.from_patterns(given.topic_partitions)
        if given.topic_partitions is not None
        else PartitionFilter.from_topic(given.topic, given.partitions)
    )
    spec = offset_spec(given.time)
    with open_cluster(given) as opened:
        view, wait_ms = opened.view, timeout_ms(client_properties(given.command_config))
        partitions = selected(view, wanted, exclude_internal=given.exclude_internal_topics)
        for named, listed in offsets_of(view, partitions, spec, wait_ms) if spec is not None else ():
            print(shown(named, listed, given.output))
    return DONE


main = Command("get-offsets", PURPOSE, EPILOG, FLAGS, get_offsets, RULES, Words(values=("topic",)))
