"""Where browsers and agents reach a tool: an address, and what it takes that other machines may reach it.

I/O: looks whether files of certificates are there.
"""

from __future__ import annotations

import argparse
import ipaddress
from pathlib import Path

from stratalog.jobs.command.terminal import UsageError

CONSOLE_ADDRESS = "127.0.0.1:8088"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def listen_address(text: str, flag: str = "--listen") -> tuple[str, int]:
    """Host and port. UsageError, which names the flag.

    >>> listen_address("[::1]:80"), listen_address("localhost:0")
    (('::1', 80), ('localhost', 0))
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"{flag} {text}: it is HOST:PORT")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether no other machine reaches the address.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, False, True)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_listener(given: argparse.Namespace, flag: str = "--listen", prefix: str = "--") -> None:
    """UsageError for an address that others reach without TLS, unless that is allowed.

    flag    how the address was given
    prefix  of the other flags
    """
    host, _ = listen_address(given.listen, flag)
    if not is_loopback(host) and not given.tls_certificate and not given.allow_plaintext:
        raise UsageError(
            f"{flag} {given.listen} is reached by other machines, and without TLS passwords and records can be read on "
            f"their way. Give {prefix}tls-certificate and {prefix}tls-key, or {prefix}allow-plaintext"
        )
    for file in filter(None, (given.tls_certificate, given.tls_key)):
        if not Path(file).expanduser().is_file():
            raise UsageError(f"there is no file {file}")
