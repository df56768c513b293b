"""`kafka-console-consumer` for stratalog: committed records on standard output, in Kafka's format.

I/O: tables and the leaders' progress objects, or leaders; in a group also coordinators, in this process with
`main.call(arguments, cluster)`.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from stratalog import Consumer, ConsumerRecord, TopicPartition
from stratalog.clients.client_view import ClientView
from stratalog.clients.config import ConsumerConfig
from stratalog.jobs.command.arguments import CLUSTER, client_properties, cluster_of, connection_settings
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.partition_filter import TopicFilter
from stratalog.jobs.command.properties import key_values, read_properties
from stratalog.jobs.command.terminal import DONE, UsageError, complain, drop_output, error_text
from stratalog.jobs.command.tool import Command, one_spelling
from stratalog.jobs.command.words import Words
from stratalog.jobs.text.message_formatter import COORDINATOR_FORMATTERS, MessageFormatter
from stratalog.server.bootstrap import Cluster, RunningCluster
from stratalog.server.view.cluster_view import DEFAULT_TIMEOUT_MS
from stratalog.server.view.read_committed import READ_COMMITTED, READ_UNCOMMITTED, view_of
from stratalog.storage.errors import InvalidRecordError, OffsetOutOfRangeError

PURPOSE = "This tool helps to read data from topics and outputs it to standard output."
EPILOG = """formatter properties (--formatter-property name=value, with their defaults; printed in this order):
  print.timestamp=false    CreateTime:1700000000000         print.epoch=false    Epoch:3, the leader's
  print.partition=false    Partition:0                      print.headers=false  h1:v1,h2:v2 or NO_HEADERS
  print.offset=false       Offset:5                         print.key=false      print.value=true
  key.separator=<TAB>  line.separator=<LF>  headers.separator=,  null.literal=null
  key.deserializer, value.deserializer, headers.deserializer: Kafka's String, Short, Integer, Long, Float, Double,
  Boolean, UUID, ByteArray deserializers, e.g. value.deserializer=LongDeserializer

examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --topic events --from-beginning
  {prog} --root ROOT --topic events --partition 0 --offset 100 --max-messages 10
  {prog} --root ROOT --include 'access-.*' --formatter-property print.key=true --formatter-property print.offset=true

It reads until Ctrl-C, --max-messages, or --timeout-ms without a message, then prints to standard error how many
messages it processed. exit code: 0; 1 when something was wrong; 130 after Ctrl-C
"""
CLIENT_ID = "console-consumer"
FORMATTERS = ("DefaultMessageFormatter", "NoOpMessageFormatter", *COORDINATOR_FORMATTERS)
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
POLL_MS = 200
NEW_PARTITIONS_CHECK_S = 2.0


# fmt: off
FLAGS = {**CLUSTER, "what to read": (
    Flag("topic", "TOPIC", "The topic to consume from.", letter="t"),
    Flag("include", "REGEX", "Consume from every topic whose name matches, new ones too."),
    Flag("partition", "N", "The partition to consume from, from its end unless --offset is given.", int, letter="p"),
    Flag("offset", "OFFSET", "The offset to consume from with --partition: a non-negative number, 'earliest' or "
         "'latest' (the default). One that does not exist is an error unless auto.offset.reset is given.", letter="o"),
    switch("from-beginning", "Start with the earliest message present in the log rather than the latest."),
    Flag("max-messages", "N", "The maximum number of messages to consume before exiting. If not set, consumption is "
         "continual.", int, letter="n"),
    Flag("timeout-ms", "MS", "If specified, exit if no message is available for consumption for the specified "
         "interval.", int),
    Flag("group", "GROUP", "The consumer group id of the consumer. Brokers need `listeners` for it.", letter="g"),
    Flag("isolation-level", "LEVEL", "read_committed leaves out what is in open or aborted transactions; "
         "read_uncommitted, the default, shows all.", choices=ISOLATION_LEVELS),
), "how to show it": (
    *(Flag(name, "NAME=VALUE", text, is_repeated=True) for name, text in (
        ("formatter-property", "How a message is printed, see below; may be repeated."),
        ("property", "(DEPRECATED) Use --formatter-property."),
        ("command-property", "A consumer config, e.g. auto.offset.reset=earliest; may be repeated."),
        ("consumer-property", "(DEPRECATED) Use --command-property."),
    )),
    Flag("formatter-config", "FILE", "Property file for the formatter; single ones come first."),
    Flag("consumer.config", "FILE", "(DEPRECATED) Use --command-config."),
    Flag("formatter", "CLASS", f"One of {', '.join(FORMATTERS)}; the first if not given."),
    Flag("key-deserializer", "CLASS", "As the formatter property key.deserializer."),
    Flag("value-deserializer", "CLASS", "As the formatter property value.deserializer."),
    switch("skip-message-on-error", "Skip a message that cannot be shown instead of ending."),
    switch("enable-systest-events", "Print shutdown_complete at the end."),
)}
RULES = (
    *Rule.exactly_one(("topic", "include"), "Exactly one of the following arguments is required: [topic], [include]"),
    *Rule.required("partition", "offset", "The partition is required when offset is specified."),
    *Rule.required("topic", "partition", "The topic is required when partition is specified."),
    Rule("Options from-beginning and offset cannot be specified together.", "from-beginning offset"),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read. `offset`: "earliest", "latest" or a number. Limits are `sys.maxsize` when there are none."""

    topics: TopicFilter
    topic: str | None
    partition: int | None
    offset: str | int
    max_messages: int
    timeout_ms: int


def reading(given: argparse.Namespace) -> Reading:
    """What the flags ask to read. UsageError in Kafka's words for a malformed offset."""
    limits = [sys.maxsize if limit is None or limit < 0 else limit for limit in (given.max_messages, given.timeout_ms)]
    return Reading(TopicFilter(given.include or ""), given.topic, given.partition, _start_offset(given), *limits)


def _start_offset(given: argparse.Namespace) -> str | int:
    if given.offset is None:
        return "earliest" if given.from_beginning else "latest"
    text = given.offset.lower()
    if text in ("earliest", "latest"):
        return str(text)
    if not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"The provided offset value '{given.offset}' is incorrect. "
            "Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(text)


def config_sources(given: argparse.Namespace) -> tuple[str | None, list[str]]:
    """The property file, and the properties given one by one."""
    config_file = one_spelling(given, "command-config", "consumer.config")
    return config_file, one_spelling(given, "command-property", "consumer-property")


def consumer_settings(given: argparse.Namespace) -> dict[str, str]:
    """The consumer's configs by Kafka's names. UsageError for conflicting groups or resets."""
    settings = client_properties(*config_sources(given))
    groups = dict.fromkeys(group for group in (given.group, settings.get("group.id")) if group)
    if len(groups) > 1:
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--command-property', or via "
            f"'--command-config') do not match. Detected group ids: {', '.join(map(repr, groups))}"
        )
    if groups and given.partition is not None:
        raise UsageError("Options group and partition cannot be specified together.")
    if groups:
        settings["group.id"] = next(iter(groups))
    else:
        settings.pop("enable.auto.commit", None)
    reset = settings.get("auto.offset.reset")
    if given.from_beginning and reset not in (None, "earliest"):
        raise UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    if given.isolation_level is not None:
        settings["isolation.level"] = given.isolation_level
    settled = {"client.id": CLIENT_ID, "auto.offset.reset": _reset_policy(given)} | settings
    ConsumerConfig.from_settings(settled, {})
    return settled


def _reset_policy(given: argparse.Namespace) -> str:
    if given.partition is not None and given.offset is not None:
        return "none"
    return "earliest" if given.from_beginning else "latest"


def formatter(given: argparse.Namespace) -> Formatter:
    """The formatter that the flags name. InvalidConfigError, UsageError."""
    name = re.split(r"[.$]", given.formatter or FORMATTERS[0])[-1]
    if name not in FORMATTERS:
        raise UsageError(f"Class {given.formatter} could not be found; known: {', '.join(FORMATTERS)}")
    pairs = one_spelling(given, "formatter-property", "property")
    properties = read_properties(given.formatter_config) if given.formatter_config else {}
    for flag in ("key_deserializer", "value_deserializer"):
        if getattr(given, flag):
            properties[flag.replace("_", ".")] = getattr(given, flag)
    properties |= key_values(pairs)
    if name in COORDINATOR_FORMATTERS:
        return COORDINATOR_FORMATTERS[name]
    made = MessageFormatter.from_properties(properties)
    return MessageFormatter(print_value=False) if name == "NoOpMessageFormatter" else made


class Formatter(Protocol):
    """Makes a record printable."""

    def format(self, record: ConsumerRecord) -> bytes:
        """The bytes to print for a record. InvalidRecordError when it cannot be decoded."""
        ...


class Output:
    """Prints messages and counts them."""

    def __init__(self, stream: IO[bytes], form: Formatter, *, skip_errors: bool) -> None:
        self.count = 0
        self._stream = stream
        self._form = form
        self._skip_errors = skip_errors

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        """Raises InvalidRecordError for one that cannot be shown, BrokenPipeError when the output is closed."""
        try:
            for record in records:
                self.count += 1
                self._write(record)
        finally:
            self._stream.flush()

    def _write(self, record: ConsumerRecord) -> None:
        try:
            self._stream.write(self._form.format(record))
        except InvalidRecordError as reason:
            if not self._skip_errors:
                raise
            complain(f"Error processing message, skipping this message: {error_text(reason)}")


class ConsoleSubscription:
    """The partitions to read: one, or those of the topics asked for as topics and partitions are created."""

    def __init__(self, consumer: Consumer, view: ClientView, wanted: Reading, *, keep_reset: bool) -> None:
        self._consumer = consumer
        self._view = view
        self._wanted = wanted
        self._keep_reset = keep_reset
        self._checked_s = time.monotonic()

    def start(self) -> None:
        """Assign, and seek where an offset is asked for. UnknownTopicOrPartitionError, OffsetOutOfRangeError."""
        if self._consumer.config.group_id:
            topics = [self._wanted.topic] if self._wanted.topic is not None else []
            self._consumer.subscribe(topics, pattern=None if topics else self._wanted.topics.pattern)
            return
        if self._wanted.partition is None or self._wanted.topic is None:
            self._consumer.assign(self._partitions())
            return
        one = TopicPartition(self._wanted.topic, self._wanted.partition)
        self._consumer.assign([one])
        if self._wanted.offset == "earliest":
            self._consumer.seek_to_beginning([one])
        elif self._wanted.offset == "latest":
            self._consumer.seek_to_end([one])
        else:
            self._seek(one, int(self._wanted.offset))

    def _seek(self, one: TopicPartition, offset: int) -> None:
        """Seek to an offset that exists. Kafka's tool would seek to the end and show nothing; here it is an error."""
        first, end = self._consumer.beginning_offsets([one])[one], self._consumer.end_offsets([one])[one]
        if not self._keep_reset and not first <= offset <= end:
            raise OffsetOutOfRangeError(f"{one}: offset {offset} is outside [{first}, {end}], the committed records")
        self._consumer.seek(one, offset)

    def follow(self) -> None:
        """Every `NEW_PARTITIONS_CHECK_S`: read new partitions from their beginning, for all in them is new."""
        now_s, is_fixed = time.monotonic(), self._consumer.config.group_id or self._wanted.partition is not None
        if is_fixed or now_s - self._checked_s < NEW_PARTITIONS_CHECK_S:
            return
        self._checked_s = now_s
        known, current = self._consumer.assignment(), self._partitions()
        if set(current) == known:
            return
        self._consumer.assign(current)
        for new in set(current) - known:
            self._consumer.seek(new, 0)

    def _partitions(self) -> list[TopicPartition]:
        if self._wanted.topic is not None:
            topics = [self._wanted.topic]
            self._view.refresh()
        else:
            topics = [topic for topic in self._view.topics() if self._wanted.topics.allows(topic)]
        return [partition for topic in topics for partition in self._view.partitions(topic)]


def consume(consumer: Consumer, subscription: ConsoleSubscription, wanted: Reading, output: Output) -> None:
    """Print messages until there are `max_messages`, or none for `timeout_ms`."""
    last_s = time.monotonic()
    while output.count < wanted.max_messages:
        idle_ms = int(1000 * (time.monotonic() - last_s))
        records = consumer.poll(min(POLL_MS, max(0, wanted.timeout_ms - idle_ms)))
        if records:
            left = wanted.max_messages - output.count
            output.write(records[:left])
            # A record that is not shown is not consumed: the group's next member reads it.
            for unseen in reversed(records[left:]):
                consumer.seek((unseen.topic, unseen.partition), unseen.offset)
            last_s = time.monotonic()
        elif 1000 * (time.monotonic() - last_s) >= wanted.timeout_ms:
            return
        subscription.follow()


def console_consumer(given: argparse.Namespace, cluster: RunningCluster | None = None) -> int:
    """Do what the flags ask for; the exit code. A group's coordinator is called in `cluster`, else where it is."""
    if cluster is not None:
        settings = consumer_settings(given)
        view = view_of(settings.get("isolation.level", READ_UNCOMMITTED))(cluster.root)
        return read(given, settings, cluster, view)
    cluster_of(given)
    settings = consumer_settings(given)
    reading(given), formatter(given)  # wrong flags are refused before anything is called
    level = settings.get("isolation.level", READ_UNCOMMITTED)
    called = connection_settings(*config_sources(given))
    with open_cluster(given, connection=called, isolation_level=level, wait_ms=DEFAULT_TIMEOUT_MS) as opened:
        if not opened.is_served and not settings.get("group.id"):
            return read(given, settings, opened.view.root, opened.view)
        with opened.running() as running:
            return read(given, settings, running, opened.view)


def read(given: argparse.Namespace, settings: Mapping[str, str], cluster: Cluster, view: ClientView) -> int:
    """Print messages as the flags say; the exit code."""
    wanted, form = reading(given), formatter(given)
    consumer = Consumer(cluster, settings, view=view)
    subscription = ConsoleSubscription(consumer, view, wanted, keep_reset=settings["auto.offset.reset"] != "none")
    subscription.start()
    if not view.image.live_brokers():
        complain(f"WARN no broker of the cluster at {view.root} is running: waiting for one")
    output = Output(sys.stdout.buffer, form, skip_errors=given.skip_message_on_error)
    try:
        consume(consumer, subscription, wanted, output)
    except BrokenPipeError:
        drop_output()
        complain("Unable to write to standard out, closing consumer.")
    finally:
        consumer.close()
        complain(f"Processed a total of {output.count} messages")
        if given.enable_systest_events:
            print("shutdown_complete")
    return DONE


main = Command("consume", PURPOSE, EPILOG, FLAGS, console_consumer, RULES, Words(values=("topic",)))
