"""The console's questions for agents, over standard input and output or HTTP. Kafka has no such tool.

I/O: standard input and output, or a listener; the cluster.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from stratalog import __version__
from stratalog.clients.console.doors import Door, EnteredUser, RootDoor, ServedDoor
from stratalog.jobs.command.arguments import CLUSTER, cluster_of, connection_settings
from stratalog.jobs.command.flags import Flag, switch
from stratalog.jobs.command.listen_at import LOOPBACK_NAMES, check_listener, is_loopback, listen_address
from stratalog.jobs.command.opened import OpenedCluster, open_cluster
from stratalog.jobs.command.terminal import DONE, UsageError, complain
from stratalog.jobs.command.tool import Command
from stratalog.jobs.console import BESIDE, RULES, WAIT_MS, beside_of
from stratalog.storage.clock import SystemClock

PURPOSE = "Answer an agent's questions about a cluster (Model Context Protocol). Nothing is changed."
EPILOG = """examples (--root ROOT or --bootstrap-server HOST:PORT before them, or STRATA_ROOT, …):
  {prog}
  {prog} --user alice                             the password is in the environment, STRATA_PASSWORD
  {prog} --listen 127.0.0.1:8089                  HTTP, at /mcp; a login is a Basic one of each request

The questions are those of `strata console`, each a tool; ACLs hold as there. An agent's settings have a command:
  {"command": "strata", "args": ["mcp", "--root", "ROOT", "--user", "alice"]}
exit code: 0 when the agent is gone, or after Ctrl-C
"""
PASSWORD = "STRATA_PASSWORD"
HOST = "127.0.0.1"
"""The address of an agent on standard input, for ACLs that name one."""

# fmt: off
FLAGS = {**CLUSTER, **BESIDE, "who asks": (
    Flag("user", "NAME", f"The user whose ACLs hold; {PASSWORD} has the password. Without users in the cluster: none."),
    Flag("super-users", "PRINCIPALS", "By --root: who may do everything, User:NAME with semicolons between, as the "
         "brokers' super.users.", default=""),
), "HTTP": (
    Flag("listen", "HOST:PORT", "Serve HTTP there instead of standard input and output.", default=""),
    Flag("tls-certificate", "FILE", "A PEM file with the certificate and those that lead to it."),
    Flag("tls-key", "FILE", "A PEM file with its key."),
    Flag("host-name", "NAME", "A name by which agents call it; may be repeated. Any, unless it listens on this machine "
         "alone.", is_repeated=True),
    switch("allow-plaintext", "Listen on an address that other machines reach though there is no TLS."),
)}
# fmt: on


def mcp(given: argparse.Namespace) -> int:
    """Serve until the agent is gone, or Ctrl-C; the exit code."""
    if given.listen:
        check_listener(given)
    beside = beside_of(given)
    connection = connection_settings(given.command_config)
    needs_login = not cluster_of(given).root and connection.get("security.protocol", "").upper().startswith("SASL")

    @contextmanager
    def open_as(name: str, password: str) -> Iterator[OpenedCluster]:
        login = {**connection, "sasl.username": name, "sasl.password": password}
        login.pop("sasl.jaas.config", None)
        with open_cluster(given, connection=login, wait_ms=WAIT_MS) as opened:
            yield opened

    if needs_login:
        return serve(given, ServedDoor(None, open_as, beside))
    with open_cluster(given, wait_ms=WAIT_MS) as opened:
        supers = [each.strip() for each in given.super_users.split(";") if each.strip()]
        return serve(
            given, ServedDoor(opened, open_as, beside) if opened.is_served else RootDoor(opened, supers, beside)
        )


def serve(given: argparse.Namespace, door: Door) -> int:
    """Serve users whom the door lets in; the exit code."""
    from stratalog.clients.console.agents import (
        AgentLogins,
        agent_server,
        entry_of_request,
        http_application,
        serve_http,
        serve_stdio,
    )

    clock = SystemClock()
    if not given.listen:
        entry = entry_of(given, door)
        try:
            serve_stdio(agent_server(lambda _: entry, clock, __version__))
        finally:
            entry.close()
        return DONE
    host, port = listen_address(given.listen)
    names = frozenset(given.host_name) | (LOOPBACK_NAMES if is_loopback(host) else frozenset())
    is_named = is_loopback(host) or bool(given.host_name)
    logins = AgentLogins(door, clock)
    server = agent_server(entry_of_request, clock, __version__)
    application = http_application(server, logins, names if is_named else frozenset())
    try:
        serve_http(application, (host, port), given.tls_certificate, given.tls_key, complain)
    finally:
        logins.close()
    return DONE


def entry_of(given: argparse.Namespace, door: Door) -> EnteredUser:
    """The user of standard input. UsageError when one is needed and not named."""
    if given.user:
        password = os.environ.get(PASSWORD)
        if password is None:
            raise UsageError(f"--user {given.user} needs a password, in the environment: {PASSWORD}")
        return door.enter(given.user, password, HOST)
    if door.needs_login():
        raise UsageError(f"The cluster has users: give --user, with the password in {PASSWORD}")
    return door.without_login(HOST)


main = Command("mcp", PURPOSE, EPILOG, FLAGS, mcp, RULES)
