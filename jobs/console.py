"""A web application over a cluster, by its metadata root or its brokers' addresses. Kafka has no such tool.

I/O: a listener for browsers, the cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stratalog import SchemaRegistryClient
from stratalog.jobs.command.arguments import CLUSTER, cluster_of, connection_settings
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.listen_at import (
    CONSOLE_ADDRESS,
    LOOPBACK_NAMES,
    check_listener,
    is_loopback,
    listen_address,
)
from stratalog.jobs.command.opened import OpenedCluster, open_cluster
from stratalog.jobs.command.properties import key_values
from stratalog.jobs.command.terminal import DONE, complain
from stratalog.jobs.command.tool import Command
from stratalog.storage.clock import RandomIds, SystemClock

if TYPE_CHECKING:
    from stratalog.clients.console.beside import Beside

PURPOSE = "Show a cluster in a browser: topics, records, groups, transactions, brokers, access."
EPILOG = """examples (--root ROOT or --bootstrap-server HOST:PORT before them, or STRATA_ROOT, …):
  {prog}
  {prog} --listen 127.0.0.1:9000 --allow-changes
  {prog} --listen 0.0.0.0:8443 --tls-certificate tls.crt --tls-key tls.key --host-name console.example

By --root, users of the cluster (SCRAM) log in, and its ACLs say what each sees. By --bootstrap-server with a SASL
listener a login is a connection as that user. Without users there is no login: see docs/console.md.
exit code: 0 after Ctrl-C
"""
WAIT_MS = 5_000

# fmt: off
BESIDE = {"schemas and typed tables": (
    Flag("schema-folder", "TOPIC", "The topic with the cluster's schemas.", default="_schemas"),
    Flag("schema-registry", "URL", "Schemas are at this registry server."),
    Flag("registry-property", "NAME=VALUE", "A config of the registry's client; may be repeated.", is_repeated=True),
    Flag("typed-table", "URL", "A typed table of a topic that left no note in the cluster: its path or URL; may be "
         "repeated.", is_repeated=True),
)}
CALLED = {"how brokers are called": (
    Flag("listener", "NAME", "By --root: the listener to call brokers at; by default the one that is named as "
         "security.protocol, or each broker's first one.", default=""),
)}
FLAGS = {**CLUSTER, **CALLED, **BESIDE, "the listener": (
    Flag("listen", "HOST:PORT", "Where browsers reach it.", default=CONSOLE_ADDRESS),
    Flag("tls-certificate", "FILE", "A PEM file with the certificate and those that lead to it."),
    Flag("tls-key", "FILE", "A PEM file with its key."),
    Flag("host-name", "NAME", "A name by which browsers call it; may be repeated. Any, unless it listens on this "
         "machine alone.", is_repeated=True),
    Flag("trusted-proxy", "ADDRESS", "A proxy whose X-Forwarded-For and -Proto are believed; may be repeated. "
         "Without it all who come through a proxy are one address, whose failed logins slow all.", is_repeated=True),
    switch("allow-plaintext", "Listen on an address that other machines reach though there is no TLS."),
), "what is allowed": (
    switch("allow-changes", "Let users change the cluster, as far as their ACLs allow."),
    Flag("super-users", "PRINCIPALS", "By --root: who may do everything, User:NAME with semicolons between, as the "
         "brokers' super.users.", default=""),
)}
RULES = (
    Rule("A certificate needs its key: --tls-key", "tls-certificate", "tls-key"),
    Rule("A key needs its certificate: --tls-certificate", "tls-key", "tls-certificate"),
    *Rule.required("schema-registry", "registry-property"),
)
# fmt: on


def beside_of(given: argparse.Namespace) -> Beside:
    """What the flags name beside the cluster. A registry that does not answer holds a page up for some seconds."""
    from stratalog.clients.console.beside import Beside

    registry = None
    if given.schema_registry is not None:
        patience = {"timeout.ms": WAIT_MS, "max.retries": 0}
        named = {**patience, **key_values(given.registry_property), "url": given.schema_registry}
        registry = SchemaRegistryClient(named)
    return Beside(registry, given.schema_folder, tuple(given.typed_table))


def console(given: argparse.Namespace) -> int:
    """Serve until Ctrl-C; the exit code."""
    check_listener(given)
    from stratalog.clients.console.application import Console, ConsoleSettings
    from stratalog.clients.console.doors import Door, RootDoor, ServedDoor
    from stratalog.clients.console.serving import serve

    host, port = listen_address(given.listen)
    beside = beside_of(given)
    named = cluster_of(given)
    connection = connection_settings(given.command_config)
    names = frozenset(given.host_name) | (LOOPBACK_NAMES if is_loopback(host) else frozenset())
    settings = ConsoleSettings(
        named.root or named.servers,
        given.allow_changes,
        bool(given.tls_certificate),
        names if is_loopback(host) or given.host_name else frozenset(),
        has_storage=bool(named.root),
    )
    needs_login = not named.root and connection.get("security.protocol", "").upper().startswith("SASL")

    @contextmanager
    def open_as(name: str, password: str) -> Iterator[OpenedCluster]:
        login = {**connection, "sasl.username": name, "sasl.password": password}
        login.pop("sasl.jaas.config", None)
        with open_cluster(given, connection=login, wait_ms=WAIT_MS) as opened:
            yield opened

    ids = RandomIds()

    def run(door: Door) -> None:
        made = Console(door, settings, SystemClock(), lambda: ids.new_id() + ids.new_id())
        try:
            serve(made.application(), host, port, given.tls_certificate, given.tls_key, complain, given.trusted_proxy)
        finally:
            made.sessions.close()

    if needs_login:
        run(ServedDoor(None, open_as, beside))
        return DONE
    with open_cluster(given, connection=connection, wait_ms=WAIT_MS, listener=given.listener) as opened:
        supers = [each.strip() for each in given.super_users.split(";") if each.strip()]
        run(ServedDoor(opened, open_as, beside) if opened.is_served else RootDoor(opened, supers, beside))
    return DONE


main = Command("console", PURPOSE, EPILOG, FLAGS, console, RULES)
