"""The progress of one replica, its encoding, and the paths of progress objects. Pure.

Entries merge by (leader epoch, table version), never downwards (promise 21). `progress_object` writes and reads the
objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.records import TopicPartition

UNKNOWN = -1
ENDED = "ended"
"""The state of a writer that will publish nothing more."""
PROGRESS_PREFIX = "progress/"

_parsed_at = json.JSONDecoder().raw_decode
_quoted = json.encoder.encode_basestring_ascii


class ReplicaProgress(NamedTuple):
    """One replica as its writer last saw it. A follower's `high_watermark` and `start_offset` are UNKNOWN.

    known_committed  while a leader's high watermark is UNKNOWN, for long if its ISR is under `min.insync.replicas`: the
                     highest one of earlier epochs that the leader knows, up to which the log may be read. Not a high
                     watermark itself, since a higher one may have been published.
    removed_version, removed_end  a leader's `LogState.removed_records`
    unclean          the number of the partition's unclean elections by then: an entry says nothing after the next one
    """

    topic_partition: TopicPartition
    leader_epoch: int
    log_end_offset: int
    version: int
    high_watermark: int = UNKNOWN
    log_start_offset: int = 0
    start_offset: int = UNKNOWN
    topic_id: str = ""
    known_committed: int = UNKNOWN
    removed_version: int = 0
    removed_end: int = 0
    unclean: int = 0

    def supersedes(self, other: ReplicaProgress | None) -> bool:
        """True when this is newer: a later leader epoch, table version, or high watermark of the same version.

        A new topic of an old name starts from zero: the later entry of one writer wins.
        """
        return (
            other is None
            or other.topic_id != self.topic_id
            or (self.leader_epoch, self.version, self.high_watermark, self.log_start_offset)
            > (other.leader_epoch, other.version, other.high_watermark, other.log_start_offset)
        )


class ProgressHeader(NamedTuple):
    """The first line of a progress object.

    sequence        of the newest change
    complete_above  every change with a higher sequence is in the object; older ones may be in the full state only
    beat            changes at least every heartbeat
    state           of the writer: `active`, `ended`, …
    """

    sequence: int
    complete_above: int
    beat: int
    state: str


def encode_row(sequence: int, p: ReplicaProgress) -> bytes:
    """One line: a JSON list that begins with the sequence number of the change."""
    topic, partition = p.topic_partition
    more = "" if p.known_committed == UNKNOWN else f",{p.known_committed}"
    if p.removed_version or p.unclean:
        more = f",{p.known_committed},{p.removed_version},{p.removed_end}"
    unclean = f",{p.unclean}" if p.unclean else ""
    return (
        f"[{sequence},{_quoted(topic)},{partition},{p.leader_epoch},{p.log_end_offset},{p.version},{p.high_watermark},"
        f"{p.log_start_offset},{p.start_offset},{_quoted(p.topic_id)}{more}{unclean}]"
    ).encode()


def encode_progress(header: ProgressHeader, rows: Iterable[bytes]) -> bytes:
    """A progress object: the header, then the rows of `encode_row`, the newest change first."""
    first = f"[{header.sequence},{header.complete_above},{header.beat},{_quoted(header.state)}]"
    return b"\n".join([first.encode(), *rows])


def progress_header(content: bytes) -> ProgressHeader:
    """The first line of a progress object. CorruptMessageError for anything else: a power cut leaves new files of a
    local disk empty, or full of zeros."""
    try:
        sequence, complete_above, beat, state = _parsed_at(content.decode())[0]
        return ProgressHeader(int(sequence), int(complete_above), int(beat), str(state))
    except (ValueError, TypeError) as reason:
        raise CorruptMessageError(f"not a progress object: {content[:200]!r} ({reason})") from reason


def writer_state(content: bytes | None) -> str:
    """The state in a progress object's header; ENDED when it is absent or unreadable: a live writer writes it again."""
    try:
        return ENDED if content is None else progress_header(content).state
    except CorruptMessageError:
        return ENDED


def progress_rows(content: bytes, after: int = 0) -> Iterator[ReplicaProgress]:
    """The rows of a progress object whose sequence is above `after`, newest first; the others are not decoded.

    CorruptMessageError for one that is no row.
    """
    try:
        text = content.decode()
        start = text.find("\n") + 1
        while start and int(text[start + 1 : text.index(",", start)]) > after:
            (_, topic, partition, *rest), end = _parsed_at(text, start)
            yield ReplicaProgress(TopicPartition(topic, partition), *rest)
            start = text.find("\n", end) + 1
    except (ValueError, TypeError) as reason:
        raise CorruptMessageError(f"not a row of progress in {content[:200]!r} ({reason})") from reason


def concerns_followers(before: ReplicaProgress | None, after: ReplicaProgress) -> bool:
    """Whether a leader's change matters to followers: records, log start, leader epoch, topic id."""
    return before is None or _followed(before) != _followed(after)


def concerns_readers(before: ReplicaProgress | None, after: ReplicaProgress) -> bool:
    """Whether a leader's change matters to readers: not records alone, which are readable once they are committed."""
    if before is None or _read(before) != _read(after):
        return True
    return before.log_end_offset == after.log_end_offset and before.version != after.version


def _followed(progress: ReplicaProgress) -> tuple[object, ...]:
    return (progress.leader_epoch, progress.log_end_offset, progress.log_start_offset, progress.topic_id)


def _read(progress: ReplicaProgress) -> tuple[object, ...]:
    start = (progress.leader_epoch, progress.log_start_offset, progress.start_offset, progress.topic_id)
    removed = (progress.removed_version, progress.removed_end)
    return (*start, progress.high_watermark, progress.known_committed, *removed)


def progress_prefix(broker_epoch: int) -> str:
    return f"{PROGRESS_PREFIX}{broker_epoch}/"


def leader_progress_path(broker_epoch: int) -> str:
    """The broker's leaders for readers: high watermarks. In the broker's root, as all progress objects.

    A log end in it is that of the last change that mattered to readers.
    """
    return progress_prefix(broker_epoch) + "leader"


def leader_ends_path(broker_epoch: int) -> str:
    """The broker's leaders for their followers: log ends. A high watermark in it may be old."""
    return progress_prefix(broker_epoch) + "leader-ends"


def fetch_progress_path(broker_epoch: int, session: str) -> str:
    """One fetch session of the broker, for the other sessions of the same fetcher."""
    return f"{progress_prefix(broker_epoch)}fetch-{session}"


def follower_progress_prefix(broker_epoch: int, leader_id: int) -> str:
    """The directory of the broker's fetch sessions' progress for one leader, with the slash."""
    return f"{progress_prefix(broker_epoch)}for-{leader_id}/"


def follower_progress_path(broker_epoch: int, leader_id: int, session: str) -> str:
    """One fetch session's progress for one leader: a copy wakes only the leader that waits for it."""
    return f"{follower_progress_prefix(broker_epoch, leader_id)}fetch-{session}"


def full_state_path(path: str) -> str:
    """The object with the full state beside a progress object."""
    return path.replace("/fetch-", "/image-fetch-") if "/fetch-" in path else path + "-image"
