"""`kafka-replica-verification` for stratalog: do all replicas of a set of topics hold the same records?

I/O: reads every replica's table from storage; the brokers need not run. Nothing is written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from stratalog.clients.admin.replica_comparison import UnmatchedOffset
from stratalog.clients.admin.replica_verification import FETCH_BYTES, PartitionVerified, ReplicaVerification
from stratalog.clients.offset_spec import OffsetSpec
from stratalog.jobs.command.arguments import CLUSTER, offset_spec, open_view
from stratalog.jobs.command.flags import Command, Flag, one_spelling, switch
from stratalog.jobs.command.partition_filter import TopicFilter
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError
from stratalog.storage.clock import Clock, SystemClock

PURPOSE = "Validate that all replicas for a set of topics have the same data."
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
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
    Flag("fetch-size", "BYTES", f"About so much of a replica is compared at once (default: {FETCH_BYTES}).", int,
         FETCH_BYTES),
    Flag("max-wait-ms", "MS", "How long to wait for new records before the next pass (default: 1000).", int, 1_000),
    Flag("time", "TIME", "Where to begin: -1 (the default: what is committed from now on), -2 (the log start, the "
         "default with --once), or milliseconds since 1970."),
    Flag("report-interval-ms", "MS", "How often the lag is reported (default: 30000).", int, 30_000),
    switch("once", "Verify what is committed now, report, and end. Ours."),
)}
# fmt: on


@dataclass(frozen=True, slots=True)
class Lag:
    """The partition that is furthest from being verified."""

    partitions: int = 0
    furthest: PartitionVerified | None = None

    def with_partition(self, verified: PartitionVerified) -> Lag:
        is_further = self.furthest is None or verified.lag > self.furthest.lag
        return Lag(self.partitions + 1, verified if is_further else self.furthest)

    def __str__(self) -> str:
        if self.furthest is None:
            return "no partition was verified"
        return (
            f"max lag is {self.furthest.lag} for partition {self.furthest.topic_partition} at offset "
            f"{self.furthest.offset} among {self.partitions} partitions"
        )


class Report:
    """What the tool prints: each finding at once, the lag every `interval_ms`."""

    def __init__(self, clock: Clock, interval_ms: int, show: Callable[[str], None]) -> None:
        self.has_findings = False
        self.lacks_records = False
        self._clock = clock
        self._interval_ms = interval_ms
        self._show = show
        self._reported_ms = clock.monotonic_ms()

    def print(self, what: str) -> None:
        """A line with the time before it."""
        self._show(f"{kafka_time(self._clock.wall_ms())}: {what}")

    def run(self, verification: ReplicaVerification) -> Lag:
        """One pass over all replicas; prints its findings."""
        lag = Lag()
        for verified in verification.run():
            lag = lag.with_partition(verified)
            for finding in verified.findings:
                self.has_findings = True
                self.lacks_records |= isinstance(finding, UnmatchedOffset)
                self.print(str(finding))
        return lag

    def maybe_print(self, lag: Lag) -> None:
        """Print the lag if that is due."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._reported_ms >= self._interval_ms:
            self._reported_ms = now_ms
            self.print(str(lag))


def kafka_time(wall_ms: int) -> str:
    """Local time as Kafka's tools and logs write it, `2026-11-21 18:30:00,123`."""
    seconds, milliseconds = divmod(wall_ms, 1_000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))},{milliseconds:03}"


def verify(verification: ReplicaVerification, clock: Clock, wait_ms: int, interval_ms: int, *, once: bool) -> int:
    """Verify once, or until a replica lacks a record; the exit code."""
    report = Report(clock, interval_ms, lambda line: print(line, flush=True))
    report.print("verification process is started.")
    while True:
        lag = report.run(verification)
        if once:
            report.print(str(lag))
            return FAILED if report.has_findings else DONE
        if report.lacks_records:
            return FAILED
        report.maybe_print(lag)
        clock.sleep_ms(wait_ms)


def replica_verification(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    given.bootstrap_server = given.bootstrap_server or given.broker_list
    for name in ("fetch_size", "max_wait_ms", "report_interval_ms"):
        if getattr(given, name) < 0:
            raise UsageError(f"--{name.replace('_', '-')} must not be negative, it is {getattr(given, name)}")
    wanted = TopicFilter(one_spelling(given, "topics-include", "topic-white-list") or ".*")
    start = offset_spec(given.time or (EARLIEST if given.once else LATEST)) or OffsetSpec.latest()
    view = open_view(given)
    partitions = [tp for topic in view.topics() if wanted.allows(topic) for tp in view.partitions(topic)]
    if not partitions:
        raise UsageError(
            "No topics found. --topics-include if specified, is either filtering out all topics or there is no topic."
        )
    verification = ReplicaVerification(view, partitions, start=start, fetch_bytes=given.fetch_size)
    return verify(verification, SystemClock(), given.max_wait_ms, given.report_interval_ms, once=given.once)


main = Command("replica_verification", PURPOSE, EPILOG, FLAGS, replica_verification)

if __name__ == "__main__":
    sys.exit(main())
