"""How long things may take and how long is waited between them: pauses that are computed, and the room's table. Pure.

A row is a `Bound`, one time wherever the store is, or a `Poll`, whose pause depends on whether writes are reported to
the reader and, where they are not, on the time without news. Rows stand in a table and nowhere else: this one, and
`replication/cadence.py` for what brokers do. Where a user can set a time, the setting is the row, and its default is in
`replication/config.py`, `topic_config.py` or `upkeep/chore.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Bound:
    """One time in milliseconds: a pause, an interval, an age, or the most that something may take.

    of   what takes this time
    why  what would suffer if it were longer, or shorter
    """

    ms: int
    of: str
    why: str

    @property
    def s(self) -> float:
        """The same in seconds, as Python's own waits take it."""
        return self.ms / 1_000


def idle_pause_ms(shortest_ms: int, longest_ms: int, idle_ms: int, share: int) -> int:
    """The pause before a place that cannot be watched is read again: one `share`-th of the time without news.

    idle_ms  the time since the place last had something new

    >>> [idle_pause_ms(20, 1_000, idle_ms, share=20) for idle_ms in (0, 1_000, 5_000, 3_600_000)]
    [20, 50, 250, 1000]
    >>> idle_pause_ms(2_000, 1_000, 0, share=20)
    2000
    """
    return max(shortest_ms, min(longest_ms, idle_ms // share))


@dataclass(frozen=True, slots=True)
class Poll:
    """How often a place is read.

    of           what is read
    why          why this often
    share        the pause is one `share`-th of the time without news,
    shortest_ms  at least this,
    longest_ms   and at most this; `within` sets both where they are settings
    watched_ms   the pause where each write is reported instead: long, for a report that was missed; 0 of what cannot be
                 watched

    >>> poll = Poll("an inbox", "each read is a request", share=20, watched_ms=1_000).within(50, 500)
    >>> [poll.pause_ms(idle_ms, is_watched=False) for idle_ms in (0, 4_000, 60_000)]
    [50, 200, 500]
    >>> poll.pause_ms(60_000, is_watched=True)
    1000
    """

    of: str
    why: str
    share: int
    shortest_ms: int = 0
    longest_ms: int = 0
    watched_ms: int = 0

    def within(self, shortest_ms: int, longest_ms: int) -> Poll:
        """The same, with these bounds where writes are not reported."""
        return replace(self, shortest_ms=shortest_ms, longest_ms=longest_ms)

    def pause_ms(self, idle_ms: int, *, is_watched: bool) -> int:
        """The pause before the next read, after so long without news."""
        if is_watched:
            return self.watched_ms
        return idle_pause_ms(self.shortest_ms, self.longest_ms, idle_ms, self.share)


@dataclass(slots=True)
class IdlePause:
    """The pauses between two reads of one place, by the time since it last had news.

    poll     how often it is read
    changed_ms  when it last had something new, or something new was to be expected. Invariant: it never decreases

    >>> pause = IdlePause(Poll("", "", share=20).within(20, 1_000), changed_ms=0)
    >>> pause.pause_ms(now_ms=5_000)
    250
    >>> pause.changed(now_ms=5_000)
    >>> pause.pause_ms(now_ms=5_000), pause.pause_ms(now_ms=60_000)
    (20, 1000)
    """

    poll: Poll
    changed_ms: int

    def changed(self, now_ms: int) -> None:
        """There is something new, or something new is to be expected. Any thread may call it."""
        self.changed_ms = max(self.changed_ms, now_ms)

    def idle_ms(self, now_ms: int) -> int:
        """The time without news."""
        return max(0, now_ms - self.changed_ms)

    def pause_ms(self, now_ms: int, *, is_watched: bool = False) -> int:
        """The pause before the next read."""
        return self.poll.pause_ms(self.idle_ms(now_ms), is_watched=is_watched)


class DueTimes:
    """When each of a loop's periodic works is due, by name; one that never was begun is due at once.

    >>> due = DueTimes()
    >>> [due.is_due("beat", now_ms, interval_ms=200) for now_ms in (1_000, 1_199, 1_200)]
    [True, False, True]
    >>> due.first_ms(latest_ms=1_300), due.first_ms(latest_ms=5_000)
    (1300, 1400)
    """

    def __init__(self) -> None:
        self._due_ms: dict[str, int] = {}

    def is_due(self, name: str, now_ms: int, interval_ms: int) -> bool:
        """Whether this work is due; then it is next due an interval later."""
        if now_ms < self._due_ms.get(name, 0):
            return False
        self._due_ms[name] = now_ms + interval_ms
        return True

    def set(self, name: str, due_ms: int) -> None:
        """It is due at this time, earlier or later than it was."""
        self._due_ms[name] = due_ms

    def of(self, name: str) -> int:
        """When it is due; 0: at once."""
        return self._due_ms.get(name, 0)

    def first_ms(self, latest_ms: int) -> int:
        """When the first of those that were begun is due, at the latest `latest_ms`."""
        return min([latest_ms, *self._due_ms.values()])


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pauses of one place that fails now and then, from `first_ms` on, at most `most_ms` each.

    failures  in a row. Invariant: it is 0 exactly when `due_ms` is 0: a place that answered is due at any time

    >>> pauses = BackOff(first_ms=500, most_ms=1_500)
    >>> pauses.is_due(now_ms=0)
    True
    >>> once = pauses.failed(now_ms=100)
    >>> once.is_due(now_ms=599), once.is_due(now_ms=600)
    (False, True)
    >>> twice = once.failed(now_ms=600)
    >>> twice.due_ms, twice.failed(now_ms=1_600).due_ms
    (1600, 3100)
    >>> twice.answered() == pauses
    True
    """

    first_ms: int
    most_ms: int
    failures: int = 0
    due_ms: int = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether the pause after the last failure is over."""
        return now_ms >= self.due_ms

    def failed(self, now_ms: int) -> BackOff:
        """The value after one more failure."""
        return BackOff(self.first_ms, self.most_ms, self.failures + 1, now_ms + self.next_ms)

    @property
    def next_ms(self) -> int:
        """The pause after the next failure."""
        return min(self.most_ms, self.first_ms << min(self.failures, 20))

    def answered(self) -> BackOff:
        """The value after a success."""
        return self if not self.failures else BackOff(self.first_ms, self.most_ms)


# -- requests to object stores, and watches --------------------------------------------------------------

REQUEST = Bound(
    1_000,
    "the deadline of a request that moves little",
    "a store that answers nothing must not hold up a broker for its session",
)
CLIENT_REQUEST = Bound(
    5_000,
    "the deadline of a client's request that moves little",
    "a client has no session to keep: a store that is slow for some seconds fails no query",
)
CLIENT_RETRIES = Bound(
    30_000, "how long a client repeats a request that failed", "as long as Kafka's clients do (`request.timeout.ms`)"
)
BULK_REQUEST = Bound(
    30_000,
    "the deadline of a request that moves `BULK_BYTES` or more, or whose size is not known before",
    "its bytes take longer than a broker may wait for an answer",
)
SETTINGS_RECHECK = Bound(5_000, "between two looks at the file of stores' settings", "replaced credentials end soon")
WATCH_RETRY = Bound(
    1_000, "the interval in which a place that cannot be watched is tried again", "a disk may be away for a while"
)

# -- logs ------------------------------------------------------------------------------------------------

PRODUCER_ID_EXPIRATION = Bound(
    DAY_MS, "how long an idle producer is remembered", "Kafka's default of `producer.id.expiration.ms`"
)
SINK_EXPIRATION = Bound(
    30 * DAY_MS, "how long an idle Spark sink is remembered", "a query may be restarted weeks later"
)
PRODUCERS_EXPIRY = Bound(
    600_000, "the interval of looks for producers to forget, after which the whole state is written", "as in Kafka"
)
REMOVED_FILES_KEPT = Bound(
    HOUR_MS,
    "how long a table's own property says that removed files stay, unless the topic says otherwise",
    "readers of other engines may still read them",
)
VERSION_CHECK = Bound(
    10_000,
    "the interval in which an idle log checks whether clean-up has deleted the version of its fold",
    "each check reads storage; what is in doubt is checked at once",
)

COMMITS_KEPT = Bound(
    120_000,
    "the age, by the store's own dates, below which no commit of a far table is deleted, however crowded the log is",
    "a leader that made a commit less than half as long ago does not read whether it still stands",
)

# -- upkeep ----------------------------------------------------------------------------------------------

APPENDS_SLOWED = Bound(
    100, "the longest pause of appends for one file below `stop_count`", "appends slow down little by little"
)
APPENDS_STOPPED = Bound(
    1_000,
    "the pause of appends from `stop_count` on, and the longest of all",
    "it is far below clients' timeouts and a follower's allowed lag",
)
RECHECK = Bound(
    1_000,
    "the recheck interval of chores whose reason neither a commit nor a known time brings",
    "such as a high watermark that has risen",
)
DELETIONS = Bound(
    500,
    "the time that one piece of work spends on deletions",
    "they are slow on a busy disk, and merges must have their turn",
)
DELETE_INTERVAL = Bound(
    1_000,
    "the longest interval between two deletions",
    "few objects at a time, so that appends do not wait for the disk",
)
ROOM_RECHECK = Bound(
    10_000,
    "the interval in which the disk's room is looked at while files are kept",
    "files that readers of older versions may need are given up only for room",
)
DURABLE_RECHECK = Bound(
    10_000,
    "the recheck interval while the commit that removed the oldest object is not durable",
    "its files stay until then",
)
SCRUB_SLOT = Bound(1_000, "the shortest time slot of a scrub", "a shorter one would scrub next to nothing")
CLEANER_RECHECK = Bound(
    15_000, "the interval of the checks whether a log is dirty enough", "Kafka's default of `log.cleaner.backoff.ms`"
)
CLEANER_LEASE = Bound(
    600_000,
    "the time after which an idle cleaner loses its turn",
    "it may be at a root that answers nothing, and the other logs of the process wait",
)
