"""The console beside brokers, as a port of theirs: `strata console` in a child process.

I/O: the child, which ends when this process does. It reads storage and has a processor of its own to wait for, so that
it takes no time from the brokers' threads; brokers go on when it fails. Settings of object stores are those of the
environment, which the child has, too; it calls brokers as they call each other, by a property file without a name.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import javaproperties

from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.listen_at import CONSOLE_ADDRESS, check_listener, listen_address
from stratalog.jobs.command.terminal import UsageError, complain
from stratalog.replication.config import BrokerConfig
from stratalog.server.endpoint.listeners import inter_broker_name
from stratalog.server.remote.connections.config import CONNECTION_CONFIGS
from stratalog.server.remote.inter_broker import inter_broker_connections, lacks_login
from stratalog.storage.extras import explained

FLAG, PREFIX = "--console", "--console-"
PACKAGES = ("starlette", "uvicorn", "jinja2")
END_S = 10
NICENESS = 5
"""Steps by which the child stands behind the brokers when they compete for a processor."""

# fmt: off
CONSOLE_FLAGS = {"the console beside it": (
    Flag("console", "HOST:PORT", f"Open the console, a web application that only shows; {CONSOLE_ADDRESS} if no "
         "address is given. By its metadata root, so users of the cluster log in, and ACLs hold. Ours.",
         bare=CONSOLE_ADDRESS),
    switch("console-allow-changes", "Let users change the cluster there, as far as their ACLs allow."),
    Flag("console-tls-certificate", "FILE", "For an address that other machines reach: a PEM file."),
    Flag("console-tls-key", "FILE", "A PEM file with its key."),
    Flag("console-host-name", "NAME", "A name by which browsers call it; may be repeated.", is_repeated=True),
    switch("console-allow-plaintext", "Listen on an address that other machines reach though there is no TLS."),
)}
CONSOLE_RULES = (
    *(Rule(f"--{name} needs --console", name, "console") for name in (
        "console-allow-changes", "console-tls-certificate", "console-tls-key", "console-host-name",
        "console-allow-plaintext")),
    Rule("A certificate needs its key: --console-tls-key", "console-tls-certificate", "console-tls-key"),
    Rule("A key needs its certificate: --console-tls-certificate", "console-tls-key", "console-tls-certificate"),
)
# fmt: on


def check_console(given: argparse.Namespace) -> None:
    """Before brokers start: UsageError for an address that is none, is taken, or is reached without TLS; ImportError
    that names the extra when the console is not installed."""
    if given.console is None:
        return
    for package in PACKAGES:
        if find_spec(package) is None:
            raise explained(FLAG, ModuleNotFoundError(f"no {package}", name=package))
    named = argparse.Namespace(
        listen=given.console,
        tls_certificate=given.console_tls_certificate,
        tls_key=given.console_tls_key,
        allow_plaintext=given.console_allow_plaintext,
    )
    check_listener(named, FLAG, PREFIX)
    host, port = listen_address(given.console, FLAG)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as reason:
            raise UsageError(f"{FLAG} {given.console} cannot be listened at: {reason}") from reason


@dataclass(frozen=True, slots=True)
class Called:
    """How the child calls brokers.

    listener    the name of their listener; "": the first one, or their inboxes
    properties  the contents of a property file with the login and the key files, which may have secrets
    """

    listener: str
    properties: str

    @classmethod
    def of(cls, config: BrokerConfig) -> Called:
        """As brokers with this config call each other; those of one process need no login, and the child has none then.

        >>> Called.of(BrokerConfig.from_properties({"inter.broker.listener.name": "inside",
        ...     "listener.security.protocol.map": "INSIDE:PLAINTEXT", "listeners": "INSIDE://:1"}))
        Called(listener='INSIDE', properties='security.protocol=PLAINTEXT\\n')
        """
        if not config.listeners or lacks_login(config):
            return cls("", "")
        name = inter_broker_name(config.inter_broker_listener_name, config.security_inter_broker_protocol)
        connection = inter_broker_connections(config)
        given = {key.name: str(getattr(connection, key.name.replace(".", "_"))) for key in CONNECTION_CONFIGS}
        named = {key: value for key, value in given.items() if key.startswith(("security.", "sasl.", "ssl."))}
        differing = {key: value for key, value in named.items() if value != str(CONNECTION_CONFIGS.key(key).default)}
        differing["security.protocol"] = connection.security_protocol
        return cls(name, javaproperties.dumps(differing, timestamp=False))


def words_of(given: argparse.Namespace, root: str, super_users: str, listener: str) -> list[str]:
    """The command line of the console beside a cluster."""
    words = ["--root", root, "--listen", given.console]
    for name, value in (
        ("tls-certificate", given.console_tls_certificate),
        ("tls-key", given.console_tls_key),
        ("super-users", super_users),
        ("listener", listener),
    ):
        words += [f"--{name}", value] if value else []
    for name in given.console_host_name:
        words += ["--host-name", name]
    words += ["--allow-changes"] if given.console_allow_changes else []
    return words + (["--allow-plaintext"] if given.console_allow_plaintext else [])


@contextmanager
def console_beside(given: argparse.Namespace, root: str, config: BrokerConfig) -> Iterator[None]:
    """Run the console of the cluster with this metadata root, if it is asked for, until the block ends.

    config  that of its brokers: `super.users`, and how they call each other
    """
    if given.console is None:
        yield
        return
    called = Called.of(config)
    words = words_of(given, root, config.super_users, called.listener)
    with tempfile.TemporaryFile() as file:
        file.write(called.properties.encode())
        file.seek(0)
        words += ["--command-config", f"/dev/fd/{file.fileno()}"] if called.properties else []
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the brokers, which end it
            pass_fds=(file.fileno(),),
        )
    is_ending = threading.Event()

    def watch() -> None:
        code = child.wait()
        if not is_ending.is_set():
            complain(f"The console ended with exit code {code}; the brokers go on.")

    watcher = threading.Thread(target=watch, name="console", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_ending.set()
        assert child.stdin is not None
        child.stdin.close()
        watcher.join(END_S)
        if watcher.is_alive():
            child.kill()
            watcher.join()


def run_child(words: Sequence[str]) -> int:
    """The child: the console until standard input ends, as it does when the parent has gone, however it went."""
    os.nice(NICENESS)

    def await_end() -> None:
        while sys.stdin.buffer.read(1 << 10):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=await_end, name="parent", daemon=True).start()
    from stratalog.jobs.console import main  # the child's alone: brokers start without it

    return main(list(words))


if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1:]))
