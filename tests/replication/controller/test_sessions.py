"""Broker sessions expire without a comparison of clocks (promise 14)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from stratalog.replication.controller.sessions import Beat, PeerBeats, SessionObserver, encode_session, session_path

TIMEOUT_MS, GAP_MS_MAX = 9_000, 3_000


def observer() -> SessionObserver:
    return SessionObserver(TIMEOUT_MS, GAP_MS_MAX)


def polled(seen: SessionObserver, times_ms: Iterable[int], contents: dict[int, bytes | None]) -> set[int]:
    """Poll at these times with the same contents; what the last poll answered."""
    expired: set[int] = set()
    for now_ms in times_ms:
        expired = seen.observe(now_ms, contents)
    return expired


def test_a_session_that_changes_lives_on() -> None:
    seen = observer()
    for beat, now_ms in enumerate(range(0, 60_000, 1_000)):
        assert seen.observe(now_ms, {1: encode_session(4, "run-1", beat)}) == set()


def test_it_expires_at_the_first_poll_at_which_it_has_not_changed_for_the_timeout() -> None:
    seen = observer()
    assert polled(seen, range(1_000, 10_000, 1_000), {1: b"beat"}) == set()
    assert seen.observe(9_999, {1: b"beat"}) == set()
    assert seen.observe(10_000, {1: b"beat"}) == {1}


def test_a_late_beat_starts_the_timer_anew() -> None:
    seen = observer()
    polled(seen, range(0, 9_000, 1_000), {1: b"one"})
    assert seen.observe(9_000, {1: b"two"}) == set()
    assert polled(seen, range(10_000, 18_000, 1_000), {1: b"two"}) == set()
    assert seen.observe(18_000, {1: b"two"}) == {1}


def test_what_the_object_says_does_not_matter_only_that_it_changes() -> None:
    """No clock is compared: a beat may be any content."""
    seen = observer()
    for now_ms in range(0, 40_000, 2_000):
        content = b"a" if now_ms % 4_000 else b"b"
        assert seen.observe(now_ms, {1: content}) == set()


def test_an_observer_that_slept_expires_nobody() -> None:
    """Promise 14: everything seems unchanged for as long as the observer slept."""
    seen = observer()
    polled(seen, range(0, 5_000, 1_000), {1: b"beat", 2: b"beat"})
    assert seen.observe(20_000, {1: b"beat", 2: b"beat"}) == set()
    assert polled(seen, range(21_000, 29_000, 1_000), {1: b"beat", 2: b"other"}) == set()
    assert seen.observe(29_000, {1: b"beat", 2: b"other"}) == {1}


def test_a_gap_just_within_the_limit_is_none() -> None:
    assert polled(observer(), (0, 3_000, 6_000, 9_000), {1: b"beat"}) == {1}


def test_a_gap_above_the_limit_starts_all_timers_anew() -> None:
    assert polled(observer(), (0, 3_000, 6_000, 9_001), {1: b"beat"}) == set()


def test_it_takes_three_polls_besides_the_time() -> None:
    seen = SessionObserver(session_timeout_ms=2_000, poll_gap_ms_max=5_000)
    assert polled(seen, (0, 4_000, 8_000), {1: b"beat"}) == set()
    assert seen.observe(12_000, {1: b"beat"}) == {1}


def test_a_session_object_that_is_absent_expires_like_one_that_does_not_change() -> None:
    assert polled(observer(), range(0, 9_001, 1_000), {1: None}) == {1}


def test_who_is_not_asked_for_any_more_is_forgotten() -> None:
    seen = observer()
    polled(seen, range(0, 9_001, 1_000), {1: b"beat"})
    assert seen.observe(10_000, {}) == set()
    assert seen.observe(11_000, {1: b"beat"}) == set()


def test_forget_starts_the_timer_anew() -> None:
    seen = observer()
    assert polled(seen, range(0, 9_001, 1_000), {1: b"beat"}) == {1}
    seen.forget(1)
    assert seen.observe(10_000, {1: b"beat"}) == set()


def test_every_beat_is_another_object() -> None:
    assert session_path(3) == "sessions/3"
    assert len({encode_session(7, "run", beat) for beat in range(100)}) == 100
    assert json.loads(encode_session(7, "run", 2)) == {"broker_epoch": 7, "incarnation_id": "run", "beat": 2}


def test_a_beat_over_a_listener_counts_as_a_change_from_when_it_came() -> None:
    seen = observer()
    for now_ms in range(0, 60_000, 1_000):
        assert seen.observe(now_ms, {}, {1: now_ms - 400}) == set()
    expired = [seen.observe(now_ms, {1: b"old"}, {1: 58_600}) for now_ms in range(60_000, 69_000, 500)]
    assert expired[:16] == [set()] * 16
    assert expired[16] == {1}  # at 68,000, since nothing came after 58,600


def test_an_object_that_was_not_read_while_beats_came_is_no_sign_of_life_until_it_changes() -> None:
    """Its broker may have written it long before its last beat."""
    seen = observer()
    polled(seen, range(0, 3_000, 1_000), {1: b"first"})
    for now_ms in range(3_000, 30_000, 1_000):
        seen.observe(now_ms, {}, {1: now_ms})
    lives = observer()
    for watched, later in ((seen, b"second"), (lives, b"third")):
        for now_ms in range(3_000, 30_000, 1_000):
            watched.observe(now_ms, {}, {1: now_ms})
        for now_ms in range(30_000, 36_000, 1_000):
            assert watched.observe(now_ms, {1: b"second"}, {1: 29_000}) == set()
        found = [watched.observe(now_ms, {1: later}, {1: 29_000}) for now_ms in range(36_000, 39_000, 1_000)]
        assert found[-1] == ({1} if watched is seen else set())


def test_a_beat_counts_for_the_registration_that_sent_it() -> None:
    beats = PeerBeats()
    beats.hears(Beat(2, 7, 0), 100)
    assert (beats.heard_ms(2, 7), beats.heard_ms(2, 8), beats.heard_ms(3, 7)) == (100, None, None)


def test_who_hears_of_newer_metadata_reads_them() -> None:
    beats, reads = PeerBeats(), []
    beats.on_newer = lambda: reads.append("now")
    beats.metadata_offset = 5
    for offset in (4, 5, 6):
        beats.hears(Beat(2, 7, offset), 100)
    assert (reads, beats.newest_offset) == (["now"], 6)
