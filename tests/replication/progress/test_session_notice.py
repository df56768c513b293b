"""Who of two sessions of a share goes on, as they tell each other by notices."""

from __future__ import annotations

import pytest

from stratalog.replication.progress.of_session import SessionNotice, notices_prefix
from tests.replication.memory_stores import MemoryStores

BROKER_EPOCH = 12


class Notices:
    """Sessions of one registration, with a clock that the test moves."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.objects = self.stores.objects("broker-2")

    def tells(self, name: str, *states: str) -> SessionNotice:
        notice = SessionNotice(self.objects, BROKER_EPOCH, name, self.stores.clock)
        for state in states:
            self.stores.clock.now_ms += 10
            notice.tell(state)
        return notice


@pytest.mark.parametrize(
    ("others", "is_relieved"),
    [
        (["0-other standby active"], True),
        (["0-other standby active ending"], True),
        (["0-other standby"], False),
        (["0-other standby active ending ended"], False),
        (["1-other standby active"], False),
        (["0-ended active ended", "0-other active"], True),
    ],
    ids=str,
)
def test_a_session_is_relieved_once_by_one_of_its_share_that_took_over_later(
    others: list[str], is_relieved: bool
) -> None:
    notices = Notices()
    own = notices.tells("0-own", "standby", "active")
    for other in others:
        notices.tells(*other.split())
    assert [own.is_relieved(), own.is_relieved()] == [is_relieved, False]


def test_who_took_over_before_does_not_relieve() -> None:
    notices = Notices()
    notices.tells("0-other", "active")
    assert not notices.tells("0-own", "active").is_relieved()


def test_what_ended_sessions_left_is_read_once() -> None:
    notices = Notices()
    notices.tells("0-other", "active", "ended")
    own = notices.tells("0-own", "active")
    assert not own.is_relieved()
    notices.objects.put_register(f"{notices_prefix(BROKER_EPOCH)}0-other", b"not to be read")
    assert not own.is_relieved()
