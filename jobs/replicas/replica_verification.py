"""`kafka-replica-verification` for stratalog: do all replicas of a set of topics hold the same records?

I/O: reads every replica's table from storage; the brokers need not run. Nothing is written.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from stratalog import OffsetSpec, PartitionVerified, ReplicaVerification
from stratalog.clients.admin.replica_comparison import UnmatchedOffset
from stratalog.clients.admin.replica_verification import FETCH_BYTES
from stratalog.jobs.command.arguments import CLUSTER, offset_spec
from stratalog.jobs.command.flags import Flag, switch
from stratalog.jobs.command.opened import storage_view
from stratalog.jobs.command.partition_filter import TopicFilter
from stratalog.jobs.command.progress import progress
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError
from stratalog.jobs.command.tool import Command, one_spelling
from stratalog.storage.clock import Clock, SystemClock

PURPOSE = "Validate that all replicas for a set of topics have the same data."
EPILOG = """examples (ROOT is the metadata root that `strata cluster` printed):
  {prog} --root ROOT --once
  {prog} --root ROOT --topics-include 'access-.*|errors' --time -2 --report-interval-ms 5000

Every replica is read from storage, up to the high watermark or to the end of the replica that is furthest behind; the
lag is the distance from there to the high watermark. Records are compared one by one, whatever files hold them; a
record that compaction or an erasure removed from some replicas is no difference.
exit code: with --once 0 when all replicas agree and 1 when not; without it the tool runs until it is stopped, and
ends with 1 when a replica lacks a record that another one has, as Kafka's does
"""
EARLIEST, LATEST = "-2", "-1"


# fmt: off
FLAGS = {**CLUSTER, "": (
    Flag("broker-list", "SERVERS", "Kafka's way to name the cluster here: as --bootstrap-server."),
    Flag("topics-include", "REGEX", "List of topics to verify replica consistency (default: .*)."),
    Flag("topic-white-list", "REGEX", "DEPRECATED: use --topics-include."),
    Flag("fetch-size", "BYTES", f"About how much of a replica is compared at once (default: {FETCH_BYTES}).", int,
         FETCH_BYTES),
    Flag("max-wait-ms", "MS", "How long to wait for new records before the next pass (default: 1000).", int, 1_000),
    Flag("time", "TIME", "Where to begin: -1 (the default: what is committed from now on), -2 (the log start, the "
         "default with --once), or milliseconds since 1970."),
    Flag("report-interval-ms", "MS", "How often the lag is reported (default: 30000).", int, 30_000),
    switch("once", "Verify what is committed now, report, and end. Ours."),
)}
# fmt: on


def lag_text(verified: Sequence[PartitionVerified]) -> str:
    """Kafka's line on the partition that is furthest from its high watermark."""
    if not verified:
        return "no partition was verified"
    furthest = max(verified, key=lambda each: each.lag)
    return (
        f"max lag is {furthest.lag} for partition {furthest.topic_partition} at offset {furthest.offset} among "
        f"{len(verified)} partitions"
    )


def kafka_time(wall_ms: int) -> str:
    """Local time as Kafka's tools and logs write it, `2026-11-21 18:30:00,123`."""
    seconds, milliseconds = divmod(wall_ms, 1_000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))},{milliseconds:03}"


def verify(verification: ReplicaVerification, clock: Clock, wait_ms: int, interval_ms: int, *, once: bool) -> int:
    """Verify once, or until a replica lacks a record; the exit code. Findings are printed at once, the lag every
    `interval_ms`."""

    def show(what: str) -> None:
        print(f"{kafka_time(clock.wall_ms())}: {what}", flush=True)

    show("verification process is started.")
    reported_ms = clock.monotonic_ms()
    while True:
        verified = []
        with progress("partitions verified", len(verification.topic_partitions)) as bar:
            for each in verification.run():
                verified.append(each)
                bar.advance()
                for finding in each.findings:
                    show(str(finding))
        findings = [finding for each in verified for finding in each.findings]
        if once:
            show(lag_text(verified))
            return FAILED if findings else DONE
        if any(isinstance(finding, UnmatchedOffset) for finding in findings):
            return FAILED
        if clock.monotonic_ms() - reported_ms >= interval_ms:
            reported_ms = clock.monotonic_ms()
            show(lag_text(verified))
        clock.sleep_ms(wait_ms)


def replica_verification(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    given.bootstrap_server = given.bootstrap_server or given.broker_list
    for name in ("fetch_size", "max_wait_ms", "report_interval_ms"):
        if getattr(given, name) < 0:
            raise UsageError(f"--{name.replace('_', '-')} must not be negative, it is {getattr(given, name)}")
    wanted = TopicFilter(one_spelling(given, "topics-include", "topic-white-list") or ".*")
    start = offset_spec(given.time or (EARLIEST if given.once else LATEST)) or OffsetSpec.latest()
    view = storage_view(given, "the replicas that it compares are")
    partitions = [tp for topic in view.topics() if wanted.allows(topic) for tp in view.partitions(topic)]
    if not partitions:
        raise UsageError(
            "No topics found. --topics-include if specified, is either filtering out all topics or there is no topic."
        )
    verification = ReplicaVerification(view, partitions, start=start, fetch_bytes=given.fetch_size)
    return verify(verification, SystemClock(), given.max_wait_ms, given.report_interval_ms, once=given.once)


main = Command("replica-verification", PURPOSE, EPILOG, FLAGS, replica_verification)
