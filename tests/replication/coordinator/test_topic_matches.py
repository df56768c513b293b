"""What expressions of members match: at once, or soon, and never for long at the caller's expense."""

from __future__ import annotations

import time

import pytest

from stratalog.replication.coordinator.groups.modern.topics import matching_topics
from stratalog.replication.coordinator.topic_matches import TopicMatches
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import InvalidRegularExpressionError
from tests.waiting import wait_until

SLOW = "|".join(f"(a|b)*a(a|b){{{number}}}x" for number in range(20, 100, 4)) + "|aa.*"
"""An expression whose automaton has more states than fit: each name takes milliseconds."""
NAMES = [f"{number * 0x9E3779B1 % 2**32:0128b}".translate({48: "a", 49: "b"})[::-1] for number in range(100)]


def test_what_is_quick_is_known_at_once() -> None:
    matches = TopicMatches(SystemClock())
    assert matches("aa.*", NAMES) == matching_topics("aa.*", NAMES) != frozenset()
    assert matches("aa.*", [*NAMES, "aax"]) == matching_topics("aa.*", NAMES) | {"aax"}
    assert matches("aa.*", NAMES[:10]) == matching_topics("aa.*", NAMES[:10])


def test_what_takes_long_holds_up_nobody_and_is_known_later() -> None:
    matches = TopicMatches(SystemClock())
    begun_s = time.thread_time()
    assert matches(SLOW, NAMES) is None
    assert matches("ab.*", NAMES) == matching_topics("ab.*", NAMES)
    assert time.thread_time() - begun_s < 0.2
    wait_until(lambda: matches(SLOW, NAMES) is not None)
    assert matches(SLOW, NAMES) == matching_topics("aa.*", NAMES)


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRegularExpressionError):
        TopicMatches(SystemClock())("(a", NAMES)
