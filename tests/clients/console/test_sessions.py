"""Sessions end, logins are slowed, tokens belong to one browser. Pure."""

from __future__ import annotations

from typing import cast

from stratalog.clients.console.asker import AskedCluster
from stratalog.clients.console.doors import EnteredUser
from stratalog.clients.console.sessions import (
    ABSOLUTE_MS,
    FREE_ATTEMPTS,
    HOST_WAIT_MS_MAX,
    IDLE_MS,
    NAME_WAIT_MS_MAX,
    SESSIONS_MAX,
    FormTokens,
    LoginAttempts,
    Sessions,
)
from stratalog.replication.metadata.acls import Principal


def entry(closed: list[str], name: str = "User:alice") -> EnteredUser:
    return EnteredUser(cast("AskedCluster", None), Principal(name), lambda: None, lambda: closed.append(name))


def test_a_session_ends_when_it_is_not_used() -> None:
    closed: list[str] = []
    sessions = Sessions()
    sessions.begin("s", entry(closed), 0)
    assert sessions.find("s", IDLE_MS - 1) is not None
    assert sessions.find("s", 2 * IDLE_MS - 2) is not None
    assert sessions.find("s", 3 * IDLE_MS) is None
    assert closed == ["User:alice"]


def test_a_session_that_is_used_ends_in_the_end() -> None:
    closed: list[str] = []
    sessions = Sessions()
    sessions.begin("s", entry(closed), 0)
    for now_ms in range(0, ABSOLUTE_MS, IDLE_MS // 2):
        assert sessions.find("s", now_ms) is not None
    assert sessions.find("s", ABSOLUTE_MS) is None
    assert closed == ["User:alice"]


def test_a_logout_ends_what_belongs_to_the_user() -> None:
    closed: list[str] = []
    sessions = Sessions()
    sessions.begin("s", entry(closed), 0)
    sessions.end("s")
    assert (sessions.find("s", 1), closed) == (None, ["User:alice"])


def test_sessions_are_bounded() -> None:
    closed: list[str] = []
    sessions = Sessions()
    for n in range(SESSIONS_MAX + 3):
        sessions.begin(f"s{n}", entry(closed, f"User:{n}"), n)
    assert closed == ["User:0", "User:1", "User:2"]


def test_each_failure_doubles_the_wait_of_its_name_and_address() -> None:
    attempts = LoginAttempts()
    waits = []
    for _ in range(FREE_ATTEMPTS + 3):
        attempts.failed("alice", "10.0.0.1", 0)
        waits.append(attempts.wait_ms("alice", "10.0.0.9", 0))
    assert waits == [0] * (FREE_ATTEMPTS - 1) + [1_000, 2_000, 4_000, 8_000]
    assert attempts.wait_ms("bob", "10.0.0.1", 0) == 8_000
    assert attempts.wait_ms("bob", "10.0.0.9", 0) == 0
    assert attempts.wait_ms("alice", "10.0.0.1", 8_000) == 0


def test_others_cannot_lock_a_name_for_long() -> None:
    attempts = LoginAttempts()
    for _ in range(50):
        attempts.failed("alice", "10.0.0.1", 0)
    assert attempts.wait_ms("alice", "10.0.0.2", 0) == NAME_WAIT_MS_MAX
    assert attempts.wait_ms("bob", "10.0.0.1", 0) == HOST_WAIT_MS_MAX


def test_a_token_belongs_to_one_browser() -> None:
    tokens = FormTokens(b"key")
    assert tokens.is_right("cookie", tokens.of("cookie"))
    assert not tokens.is_right("other", tokens.of("cookie"))
    assert not tokens.is_right("", tokens.of(""))
    assert not tokens.is_right("cookie", "ä")
