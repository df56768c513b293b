"""The questions over the Model Context Protocol, asked by its own client."""

from __future__ import annotations

import json
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2 as httpx
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server

from stratalog.clients.console.agents import (
    ANSWER_BYTES,
    CUT,
    AgentLogins,
    agent_server,
    bounded_json,
    entry_of_request,
    http_application,
    login_of,
    tool_of,
)
from stratalog.clients.console.catalogue import QUESTIONS
from stratalog.clients.console.doors import EnteredUser, RootDoor, nothing
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.mcp import PASSWORD, entry_of
from stratalog.storage import errors
from stratalog.storage.clock import SystemClock
from tests.clients.console.asked_cluster import password_of
from tests.clients.console.console_world import ALICE, HIDDEN, World, running_world
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running_world() as made:
        yield made


def server_of(world: World, *, is_alice: bool) -> Server[Any]:
    asker = world.asker(is_alice=is_alice)
    entry = EnteredUser(asker.cluster, asker.principal, lambda: asker.authorizer, nothing)
    return agent_server(lambda _: entry, SystemClock(), "0")


def called(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[tuple[bool, str]]:
    """(is an error, text) of each call."""

    async def run() -> list[tuple[bool, str]]:
        async with Client(server) as client:
            found = [await client.call_tool(name, arguments) for name, arguments in calls]
        return [(each.is_error, each.content[0].text) for each in found]  # type: ignore[union-attr]

    return anyio.run(run)


def test_every_question_is_a_tool_that_only_reads(world: World) -> None:
    async def run() -> Any:
        async with Client(server_of(world, is_alice=False)) as client:
            return (await client.list_tools()).tools

    tools = anyio.run(run)
    assert {each.name for each in tools} == set(QUESTIONS)
    assert all(each.annotations.read_only_hint and each.description for each in tools)
    way = next(each for each in tools if each.name == "record_way")
    assert way.input_schema["required"] == ["topic", "partition", "offset"]
    assert way.input_schema["properties"]["offset"]["type"] == "integer"


def test_an_answer_is_json_and_an_error_says_what_to_do(world: World) -> None:
    found = called(
        server_of(world, is_alice=False),
        ("record_way", {"topic": "orders", "partition": 0, "offset": 7}),
        ("who_led", {"topic": "orders", "partition": 0, "limit": None}),
        ("record_way", {"topic": "orders"}),
        ("record_way", {"topic": ["orders"]}),
        ("no_such_question", {}),
    )
    assert [is_error for is_error, _ in found] == [False, False, True, True, True]
    assert json.loads(found[0][1])["transaction"]["outcome"] == "committed"
    assert "partition is missing" in found[2][1]
    assert "not list" in found[3][1]
    assert "there are: acls" in found[4][1]


def test_an_agent_sees_what_its_user_sees(world: World) -> None:
    bare = [name for name, each in QUESTIONS.items() if not tool_of(each).input_schema["required"]]
    calls: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in bare]
    for topic in (f"{HIDDEN}-log", f"{HIDDEN}-not"):
        calls += [("record_way", {"topic": topic, "partition": 0, "offset": 0}), ("who_led", {"topic": topic})]
    found = called(server_of(world, is_alice=True), *calls)
    count = len(calls) - 4
    assert all(HIDDEN not in text for _, text in found[:count])
    assert all(is_error for is_error, _ in found[count:])
    there, missing = (" ".join(text for _, text in found[at : at + 2]) for at in (count, count + 2))
    assert there == missing.replace(f"{HIDDEN}-not", f"{HIDDEN}-log")
    assert any(HIDDEN in text for _, text in called(server_of(world, is_alice=False), *calls[:count]))


@pytest.mark.parametrize(
    ("answer", "cut"),
    [
        ({"rows": [{"n": n, "text": "x" * 50} for n in range(5_000)], "small": [1, 2]}, {"rows"}),
        ({"rows": [["y" * 500_000]], "name": "n"}, {"rows.0.0"}),
        ({"a": list(range(30_000)), "b": {"c": ["z" * 100] * 3_000}}, {"a", "b.c"}),
    ],
)
def test_an_answer_that_is_too_long_is_cut_where_it_is_longest(answer: dict[str, Any], cut: set[str]) -> None:
    text = bounded_json(answer, ANSWER_BYTES)
    assert len(text.encode()) <= ANSWER_BYTES
    assert len(text.encode()) > ANSWER_BYTES // 8
    assert set(json.loads(text)[CUT]) == cut


def test_an_answer_without_anything_to_cut_is_left_out() -> None:
    text = bounded_json({f"key {number}": number for number in range(10_000)}, 200)
    assert json.loads(text) == {CUT: {"": "all of it"}}


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!", "Bearer YTpi", "Basic bm9jb2xvbg==", "Basic OnB3", "Basic /w=="]
)
def test_a_login_is_a_name_and_a_password(header: str) -> None:
    with pytest.raises(errors.SaslAuthenticationFailedError, match="A login is needed"):
        login_of(header)


def test_over_http_each_request_has_a_login(world: World) -> None:
    admin = world.cluster.admin()
    admin.alter_user_scram_credentials((), [password_of("alice", "right")])
    admin.create_acls(list(ALICE))
    logins = AgentLogins(RootDoor(world.opened), SystemClock())
    application = http_application(agent_server(entry_of_request, SystemClock(), "0"), logins, frozenset({"127.0.0.1"}))
    serving = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    wait_until(lambda: serving.started, "a server")
    url = f"http://127.0.0.1:{serving.servers[0].sockets[0].getsockname()[1]}/mcp"
    try:
        for auth in (None, ("alice", "wrong"), ("bob", "right")):
            assert httpx.post(url, json={}, auth=auth).status_code == 401

        async def run() -> list[Any]:
            async with (
                httpx.AsyncClient(auth=("alice", "right")) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                return [
                    await client.call_tool("who_led", {"topic": "orders"}),
                    await client.call_tool("who_led", {"topic": f"{HIDDEN}-log"}),
                ]

        allowed, refused = anyio.run(run)
        assert (allowed.is_error, refused.is_error) == (False, True)
        assert "User:alice is not allowed to DESCRIBE" in refused.content[0].text
    finally:
        serving.should_exit = True
        thread.join(30)
        logins.close()


def test_the_user_of_standard_input_is_named_when_there_are_users(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.admin().alter_user_scram_credentials((), [password_of("alice", "right")])
    door = RootDoor(world.opened)
    monkeypatch.delenv(PASSWORD, raising=False)
    with pytest.raises(UsageError, match="The cluster has users: give --user"):
        entry_of(Namespace(user=None), door)
    with pytest.raises(UsageError, match=f"needs a password, in the environment: {PASSWORD}"):
        entry_of(Namespace(user="alice"), door)
    monkeypatch.setenv(PASSWORD, "wrong")
    with pytest.raises(errors.SaslAuthenticationFailedError):
        entry_of(Namespace(user="alice"), door)
    monkeypatch.setenv(PASSWORD, "right")
    assert entry_of(Namespace(user="alice"), door).principal.name == "User:alice"


def test_the_command_serves_standard_input(tmp_path: Any) -> None:
    from stratalog import Cluster

    with Cluster.start(str(tmp_path / "cluster"), brokers=1, fetcher="thread") as cluster:
        command = StdioServerParameters(command=sys.executable, args=["-m", "stratalog", "mcp", "--root", cluster.root])
        ((is_error, text),) = called(command, ("overview", {}))
    assert not is_error
    assert len(json.loads(text)["brokers"]) == 1
