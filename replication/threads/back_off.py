"""When something is tried or read again: the pause grows with failures, or with the time without news. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pauses of one place that fails now and then, from `first_ms` on, at most `most_ms` each.

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
        pause_ms = min(self.most_ms, self.first_ms << min(self.failures, 20))
        return BackOff(self.first_ms, self.most_ms, self.failures + 1, now_ms + pause_ms)

    def answered(self) -> BackOff:
        """The value after a success."""
        return self if not self.failures else BackOff(self.first_ms, self.most_ms)


def idle_pause_ms(shortest_ms: int, longest_ms: int, idle_ms: int, share: int) -> int:
    """The pause before a place that cannot be watched is read again: one `share`-th of the time without news.

    idle_ms  the time since the place last had something new

    >>> [idle_pause_ms(20, 1_000, idle_ms, share=20) for idle_ms in (0, 1_000, 5_000, 3_600_000)]
    [20, 50, 250, 1000]
    >>> idle_pause_ms(2_000, 1_000, 0, share=20)
    2000
    """
    return max(shortest_ms, min(longest_ms, idle_ms // share))


@dataclass(slots=True)
class IdlePause:
    """The pauses between two reads of one place that cannot be watched, by the time since it last had news.

    shortest_ms, longest_ms, share  as in `idle_pause_ms`
    news_ms                         when it last had something new, or something new was to be expected

    >>> pause = IdlePause(20, 1_000, share=20, news_ms=0)
    >>> pause.pause_ms(now_ms=5_000)
    250
    >>> pause.news(now_ms=5_000)
    >>> pause.pause_ms(now_ms=5_000), pause.pause_ms(now_ms=60_000)
    (20, 1000)
    """

    shortest_ms: int
    longest_ms: int
    share: int
    news_ms: int

    def news(self, now_ms: int) -> None:
        """There is something new, or something new is to be expected. Any thread may call it."""
        self.news_ms = max(self.news_ms, now_ms)

    def idle_ms(self, now_ms: int) -> int:
        """The time without news."""
        return max(0, now_ms - self.news_ms)

    def pause_ms(self, now_ms: int) -> int:
        """The pause before the next read."""
        return idle_pause_ms(self.shortest_ms, self.longest_ms, self.idle_ms(now_ms), self.share)
