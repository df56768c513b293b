"""`kafka-console-producer` for stratalog: lines of standard input become records.

I/O: standard input; records go through the leaders' inboxes, or to their listeners.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from stratalog import Producer, RecordMetadata, StratalogError
from stratalog.clients.client_view import ClientView
from stratalog.clients.config import ProducerConfig
from stratalog.jobs.command.arguments import CLUSTER, client_properties, cluster_of, connection_settings
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.properties import key_values, read_properties
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError, complain, is_submitted
from stratalog.jobs.command.tool import Command, one_spelling
from stratalog.jobs.command.words import Words
from stratalog.jobs.text.line_reader import InputRecord, LineReader, without_line_end
from stratalog.server.view.cluster_view import DEFAULT_TIMEOUT_MS
from stratalog.storage.errors import BrokerNotAvailableError, InvalidConfigError

PURPOSE = "This tool helps to read data from standard input and publish it to a topic: each line is a record."
EPILOG = r"""reader properties (--reader-property name=value, with their defaults):
  parse.key=false              the line begins with the record's key
  key.separator=<TAB>          what stands between key and value
  parse.headers=false          the line begins with headers
  headers.delimiter=<TAB>      what stands between headers and key or value
  headers.separator=,          what stands between two headers
  headers.key.separator=:      what stands between a header's key and value
  ignore.error=false           a line without a separator is a value instead of an error
  null.marker=                 a key, value or header value equal to this is null
  with parse.headers and parse.key a line is   h1:v1,h2:v2<TAB>key<TAB>value

examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --topic events
  {prog} --root ROOT --topic events --reader-property parse.key=true --reader-property key.separator=: < lines.txt
  {prog} --root ROOT --topic events --sync --request-required-acks all

exit code: 0 when every record was acknowledged; 1 when not, each one that failed on standard error
"""
CLIENT_ID = "console-producer"
NUMBERS = (
    ("batch-size", "batch.size", "Bytes to send in a batch if not sent synchronously (1048576)."),
    ("timeout", "linger.ms", "How long a message may wait for others to fill a batch, in ms (1000). Sets linger.ms."),
    ("message-send-max-retries", "retries", "Tries after the first failed one; no limit if not given. Sets retries."),
    ("retry-backoff-ms", "retry.backoff.ms", "Pause before another try, in ms (100)."),
    ("request-timeout-ms", "request.timeout.ms", "How long the leader may take to acknowledge, in ms (30000)."),
    ("max-block-ms", "max.block.ms", "How long a send may wait for buffer memory, in ms (60000)."),
    ("max-memory-bytes", "buffer.memory", "Memory for records not sent yet, in bytes (33554432). Sets buffer.memory."),
    ("max-partition-memory-bytes", "batch.size", "Another name for --batch-size; it overrides that one."),
    ("metadata-expiry-ms", "metadata.max.age.ms", "Metadata is read again after this long, in ms (300000)."),
)  # fmt: skip
"""Flag, the producer config that it sets, help. Of two flags for one config the later in this table counts."""

CONFIG_OF_FLAG = {"request_required_acks": "acks"} | {flag.replace("-", "_"): config for flag, config, _ in NUMBERS}
DEFAULT_OF_FLAG = {"timeout": "1000", "request_required_acks": "-1"}
"""Kafka's own defaults for the console, but for its 3 retries and 1500 ms to answer, with which lines would be lost in
every failover: the producer's own (retry for delivery.timeout.ms) hold instead."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


# fmt: off
FLAGS = {**CLUSTER, "what to send, and how": (
    Flag("topic", "TOPIC", "REQUIRED: The topic to produce messages to.", letter="t"),
    switch("sync", "Send one message at a time and wait until it is acknowledged; the first failure ends the tool."),
    Flag("file", "FILE", "Read the lines of a file instead of standard input, which spark-submit does not pass on."),
    Flag("request-required-acks", "ACKS", "0: do not wait; 1: stored by the leader; -1 or all (the default): stored by "
         "every in-sync replica."),
    Flag("compression-codec", "CODEC", "Accepted for Kafka's sake: data files are always compressed with zstd.",
         default="none", bare="gzip"),
), "sizes and times": (
    *(Flag(name, "N", text, int) for name, _, text in NUMBERS),
    Flag("socket-buffer-size", "N", "Accepted for Kafka's sake: there is no socket.", int),
), "properties": (
    *(Flag(name, "NAME=VALUE", text, is_repeated=True) for name, text in (
        ("reader-property", "How a line is parsed, see below; may be repeated."),
        ("property", "(DEPRECATED) Use --reader-property."),
        ("command-property", "A producer config, e.g. delivery.timeout.ms=30000; may be repeated."),
        ("producer-property", "(DEPRECATED) Use --command-property."),
    )),
    Flag("reader-config", "FILE", "Property file for the reader; single ones come first."),
    Flag("producer.config", "FILE", "(DEPRECATED) Use --command-config."),
    Flag("line-reader", "CLASS", "Only Kafka's LineMessageReader is here.", default="LineMessageReader"),
)}
# fmt: on


def config_sources(given: argparse.Namespace) -> tuple[str | None, list[str]]:
    """The property file, and the properties given one by one."""
    config_file = one_spelling(given, "command-config", "producer.config")
    return config_file, one_spelling(given, "command-property", "producer-property")


def producer_settings(given: argparse.Namespace) -> dict[str, str]:
    """The producer's configs by Kafka's names: property file, then single ones, then flags."""
    settings = client_properties(*config_sources(given))
    for flag, name in CONFIG_OF_FLAG.items():
        value = getattr(given, flag)
        if value is not None:
            settings[name] = str(value)
        elif flag in DEFAULT_OF_FLAG:
            settings.setdefault(name, DEFAULT_OF_FLAG[flag])
    return {"client.id": CLIENT_ID, "compression.type": _codec(given.compression_codec)} | settings


def _codec(name: str) -> str:
    if name not in CODECS:
        raise InvalidConfigError(
            f"Invalid value {name} for configuration compression.type: String must be one of: {', '.join(CODECS)}"
        )
    return name


def line_reader(given: argparse.Namespace) -> LineReader:
    """The reader that the flags describe. InvalidConfigError, UsageError."""
    if given.line_reader.rpartition(".")[2] != "LineMessageReader":
        raise UsageError(f"Class {given.line_reader} could not be found; the reader here is LineMessageReader")
    pairs = one_spelling(given, "reader-property", "property")
    from_file = read_properties(given.reader_config) if given.reader_config else {}
    return LineReader.from_properties(from_file | key_values(pairs))


class Failures:
    """Counts records that were not acknowledged and prints each to standard error, as Kafka's tool does."""

    def __init__(self, topic: str) -> None:
        self.count = 0
        self._topic = topic

    def expect(self, record: InputRecord) -> Callable[[RecordMetadata | None, StratalogError | None], None]:
        """The callback for the record's outcome."""

        def on_delivery(_: RecordMetadata | None, error: StratalogError | None) -> None:
            if error is not None:
                self.count += 1
                complain(failure_text(self._topic, record, error))

        return on_delivery


def failure_text(topic: str, record: InputRecord, error: StratalogError) -> str:
    """Kafka's line on a record that failed, with the error's name before its message."""
    key, value = ("null" if part is None else f"{len(part)} bytes" for part in (record.key, record.value))
    what = f"Error when sending message to topic {topic} with key: {key}, value: {value} with error:"
    return f"ERROR {what} {error.name}: {error}"


def records_of(lines: IO[bytes], reader: LineReader, is_terminal: bool) -> Iterator[InputRecord]:
    """The lines' records, with a prompt before each on a terminal."""
    number = 0
    while True:
        if is_terminal:
            print(">", end="", flush=True)
        line = lines.readline()
        if not line:
            return
        number += 1
        yield reader.record(without_line_end(line), number)


def check_view(view: ClientView, topic: str) -> None:
    """Check that the topic exists and a broker runs, before any line is read."""
    view.partitions(topic)
    if not view.image.live_brokers():
        raise BrokerNotAvailableError(f"no broker of the cluster at {view.root} is running")


def send_all(producer: Producer, topic: str, records: Iterator[InputRecord], *, is_sync: bool) -> int:
    """Send the records, wait for all of them; how many were not acknowledged. Closes the producer."""
    failures = Failures(topic)
    with producer:
        for record in records:
            if is_sync:
                producer.send(topic, record.value, record.key, headers=record.headers).result()
            else:
                outcome = failures.expect(record)
                producer.send(topic, record.value, record.key, headers=record.headers, on_delivery=outcome)
    return failures.count


def console_producer(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    cluster_of(given)
    settings, reader = producer_settings(given), line_reader(given)
    ProducerConfig.from_settings(settings, {})
    called = connection_settings(*config_sources(given))
    if is_submitted() and not given.file:
        raise UsageError("spark-submit does not pass standard input on: give the lines with --file FILE.")
    with ExitStack() as open_files:
        try:
            lines = open_files.enter_context(Path(given.file).open("rb")) if given.file else sys.stdin.buffer
        except OSError as reason:
            raise UsageError(f"{given.file} cannot be read: {reason.strerror}") from reason
        is_terminal = not given.file and sys.stdin.isatty()
        records = records_of(lines, reader, is_terminal)
        opened = open_files.enter_context(open_cluster(given, connection=called, wait_ms=DEFAULT_TIMEOUT_MS))
        check_view(opened.view, given.topic)
        if opened.is_served:
            running = open_files.enter_context(opened.running())
            producer = Producer(running, settings, view=opened.view)
        else:
            producer = Producer(opened.view.root, settings | called, view=opened.view)
        failed = send_all(producer, given.topic, records, is_sync=given.sync)
    return FAILED if failed else DONE


main = Command("produce", PURPOSE, EPILOG, FLAGS, console_producer, Rule.required("topic"), Words(values=("topic",)))
