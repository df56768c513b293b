"""Which of two sessions of a fetcher stays active, by the states that they publish."""

from __future__ import annotations

import pytest

from stratalog.replication.progress.of_session import SessionState, session_states_prefix
from tests.replication.memory_stores import MemoryStores

BROKER_EPOCH = 12


class States:
    """Sessions of one registration, with a clock that the test moves."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.objects = self.stores.objects("broker-2")

    def published(self, name: str, *states: str) -> SessionState:
        session = SessionState(self.objects, BROKER_EPOCH, name, self.stores.clock)
        for state in states:
            self.stores.clock.now_ms += 10
            session.publish(state)
        return session


@pytest.mark.parametrize(
    ("others", "is_superseded"),
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
def test_a_session_is_superseded_once_by_one_that_became_active_later(others: list[str], is_superseded: bool) -> None:
    states = States()
    own = states.published("0-own", "standby", "active")
    for other in others:
        states.published(*other.split())
    assert [own.is_superseded(), own.is_superseded()] == [is_superseded, False]


def test_a_session_that_became_active_before_does_not_supersede() -> None:
    states = States()
    states.published("0-other", "active")
    assert not states.published("0-own", "active").is_superseded()


def test_the_states_of_ended_sessions_are_read_once() -> None:
    states = States()
    states.published("0-other", "active", "ended")
    own = states.published("0-own", "active")
    assert not own.is_superseded()
    states.objects.put_register(f"{session_states_prefix(BROKER_EPOCH)}0-other", b"not to be read")
    assert not own.is_superseded()


@pytest.mark.parametrize("left", [b"", bytes(64), b"\xff", b"[]", b'{"state"'])
def test_a_state_that_a_power_cut_spoilt_is_that_of_no_session(left: bytes) -> None:
    states = States()
    own = states.published("0-own", "active")
    states.objects.put_register(f"{session_states_prefix(BROKER_EPOCH)}0-other", left)
    assert not own.is_superseded()
