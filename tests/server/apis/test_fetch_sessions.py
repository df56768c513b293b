"""Fetch sessions: what is remembered of a client, what it is told again, who makes room for whom (KIP-227)."""

from __future__ import annotations

from itertools import count

import pytest

from stratalog.server.apis.fetch.sessions import (
    EVICTION_MS,
    INT_MAX,
    REFUSED_MAX,
    FetchContext,
    FetchKey,
    FetchSessionResult,
    FetchSessions,
    WantedPartition,
    next_epoch,
)
from stratalog.storage.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    StratalogError,
)

A, B, C = (FetchKey("t", None, number) for number in range(3))


def wanted(key: FetchKey, offset: int = 0) -> WantedPartition:
    return WantedPartition(key, offset, 1_000)


def quiet(high_watermark: int = 0) -> FetchSessionResult:
    """Nothing to tell of a partition but how far it goes."""
    return FetchSessionResult(high_watermark, 0, must_be_sent=False, has_records=False)


RECORDS = FetchSessionResult(5, 0, must_be_sent=False, has_records=True)
FAILED = FetchSessionResult(-1, -1, must_be_sent=True, has_records=False)


class Client:
    """One client's session: `fetch` goes on with it."""

    def __init__(self, slots: int = 2) -> None:
        self.sessions = FetchSessions(slots, count(100).__next__)
        self.session_id, self.epoch, self.now_ms = 0, 0, 0

    def begin(self, *new: WantedPartition, forget: tuple[FetchKey, ...] = ()) -> FetchContext:
        return self.sessions.begin(self.session_id, self.epoch, new, forget, uses_topic_ids=False, now_ms=self.now_ms)

    def fetch(
        self, outcomes: dict[FetchKey, FetchSessionResult], *new: WantedPartition, forget: tuple[FetchKey, ...] = ()
    ) -> list[FetchKey]:
        context = self.begin(*new, forget=forget)
        assert {each.key for each in context.wanted} == set(outcomes)
        self.session_id, told = self.sessions.end(context, outcomes, self.now_ms)
        self.epoch = next_epoch(self.epoch)
        return told


def test_the_first_answer_tells_everything_and_the_next_only_what_changed() -> None:
    client = Client()
    assert client.fetch({A: quiet(), B: quiet()}, wanted(A), wanted(B)) == [A, B]
    assert client.session_id == 100
    assert client.fetch({A: quiet(), B: quiet()}) == []
    assert client.fetch({A: quiet(), B: quiet(3)}) == [B]
    assert client.fetch({A: RECORDS, B: quiet(3)}) == [A]
    assert client.fetch({A: quiet(5), B: quiet(3)}, wanted(A, 5)) == []


def test_a_partition_is_told_of_again_once_its_error_is_over() -> None:
    client = Client()
    client.fetch({A: quiet()}, wanted(A))
    assert client.fetch({A: FAILED}) == [A]
    assert client.fetch({A: FAILED}) == [A]
    assert client.fetch({A: quiet()}) == [A]
    assert client.fetch({A: quiet()}) == []


def test_partitions_come_and_go_and_keep_the_offset_that_was_asked_for_last() -> None:
    client = Client()
    client.fetch({A: quiet(), B: quiet()}, wanted(A), wanted(B))
    client.fetch({B: quiet(), C: quiet()}, wanted(C), wanted(B, 7), forget=(A,))
    assert [(each.key, each.fetch_offset) for each in client.begin().wanted] == [(B, 7), (C, 0)]


def test_a_partition_with_records_goes_behind_the_others() -> None:
    client = Client()
    client.fetch({A: quiet(), B: quiet()}, wanted(A), wanted(B))
    client.fetch({A: RECORDS, B: quiet()})
    assert [each.key for each in client.begin().wanted] == [B, A]


def test_a_session_without_partitions_ends() -> None:
    client = Client()
    client.fetch({A: quiet()}, wanted(A))
    assert client.begin(forget=(A,)).session is None
    assert len(client.sessions) == 0


def test_a_session_may_begin_without_partitions() -> None:
    client = Client()
    assert client.fetch({}) == []
    assert client.session_id == 100
    assert client.fetch({A: quiet()}, wanted(A)) == [A]


@pytest.mark.parametrize(
    ("session_id", "epoch", "uses_topic_ids", "error"),
    [
        (99, 1, False, FetchSessionIdNotFoundError),
        (0, 1, False, FetchSessionIdNotFoundError),
        (100, 2, False, InvalidFetchSessionEpochError),
        (100, 1, True, FetchSessionTopicIdError),
    ],
)
def test_a_request_that_does_not_fit_its_session_is_refused(
    session_id: int, epoch: int, uses_topic_ids: bool, error: type[StratalogError]
) -> None:
    client = Client()
    client.fetch({A: quiet()}, wanted(A))
    with pytest.raises(error):
        client.sessions.begin(session_id, epoch, (), (), uses_topic_ids=uses_topic_ids, now_ms=0)


def test_a_request_that_came_twice_is_answered_once() -> None:
    client = Client()
    client.fetch({A: quiet()}, wanted(A))
    first = client.begin()
    client.epoch = 2
    second = client.begin()
    with pytest.raises(InvalidFetchSessionEpochError, match="a duplicate request"):
        client.sessions.end(first, {A: quiet()}, 0)
    assert client.sessions.end(second, {A: quiet()}, 0) == (100, [])


def test_a_full_request_ends_the_session_that_it_names_and_epoch_minus_one_makes_none() -> None:
    client = Client()
    client.fetch({A: quiet()}, wanted(A))
    client.epoch = 0
    assert client.fetch({A: quiet()}, wanted(A)) == [A]
    assert (client.session_id, len(client.sessions)) == (101, 1)
    client.epoch = -1
    assert client.fetch({A: quiet()}, wanted(A)) == [A]
    assert (client.session_id, len(client.sessions)) == (0, 0)


def test_the_epoch_goes_on_with_1_after_the_largest() -> None:
    client = Client()
    client.fetch({A: quiet()}, wanted(A))
    client.sessions.begin(100, 1, (), (), uses_topic_ids=False, now_ms=0).session.epoch = INT_MAX  # type: ignore[union-attr]
    client.epoch = INT_MAX
    client.fetch({A: quiet()})
    assert client.begin().session is not None
    assert client.epoch == 1


def full(client: Client, *keys: FetchKey) -> int:
    """The id of a new session for these partitions, 0 when there is no room."""
    client.session_id, client.epoch = 0, 0
    client.fetch(dict.fromkeys(keys, quiet()), *map(wanted, keys))
    return client.session_id


def test_a_full_cache_makes_room_for_larger_sessions_only_when_those_in_it_are_not_young() -> None:
    client = Client(slots=1)
    assert full(client, A) == 100
    assert full(client, A, B) == 0
    client.now_ms = EVICTION_MS
    client.session_id, client.epoch = 100, 1
    client.fetch({A: quiet()})  # used just now, but made long ago
    client.now_ms += 1
    assert full(client, A) == 0
    assert full(client, A, B) == 101


def test_a_stale_session_makes_room_for_any() -> None:
    client = Client(slots=1)
    assert full(client, A, B) == 100
    client.now_ms = EVICTION_MS + 1
    assert full(client, A) == 101
    assert len(client.sessions) == 1


def test_without_slots_there_are_no_sessions() -> None:
    assert full(Client(slots=0), A) == 0


def of_user(sessions: FetchSessions, user: str, results: dict[FetchKey, FetchSessionResult], now_ms: int = 0) -> int:
    """The id of the session that a full request of this user gets."""
    asked = [wanted(key) for key in results]
    context = sessions.begin(0, 0, asked, (), uses_topic_ids=False, now_ms=now_ms, user=user)
    return sessions.end(context, results, now_ms)[0]


def test_a_user_with_fewer_sessions_takes_the_stalest_of_the_user_with_most() -> None:
    sessions = FetchSessions(4, count(100).__next__)
    first = [of_user(sessions, "stranger", {A: quiet()}, number) for number in range(4)]
    assert of_user(sessions, "stranger", {A: quiet()}, 5) == 0
    assert of_user(sessions, "neighbour", {A: quiet()}, 6) != 0
    assert of_user(sessions, "neighbour", {A: quiet()}, 7) != 0
    assert of_user(sessions, "neighbour", {A: quiet()}, 8) == 0, "both have two"
    for number, session_id in enumerate(first):
        if number < 2:
            with pytest.raises(FetchSessionIdNotFoundError):
                sessions.begin(session_id, 1, (), (), uses_topic_ids=False, now_ms=9)
        else:
            sessions.begin(session_id, 1, (), (), uses_topic_ids=False, now_ms=9)


def test_a_session_does_not_keep_thousands_of_refused_partitions() -> None:
    sessions = FetchSessions(4, count(100).__next__)
    many = {FetchKey("absent", None, number): FAILED for number in range(REFUSED_MAX + 1)}
    assert of_user(sessions, "stranger", many) == 0
    few = {FetchKey("absent", None, number): FAILED for number in range(3)}
    session_id = of_user(sessions, "stranger", few)
    assert session_id != 0
    added = [wanted(key) for key in many]
    context = sessions.begin(session_id, 1, added, (), uses_topic_ids=False, now_ms=1)
    assert sessions.end(context, many, 1) == (0, list(many))
    assert len(sessions) == 0
