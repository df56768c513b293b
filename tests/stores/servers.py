"""Real object store servers as processes of their own: S3 by moto and by versitygw, Azure Blob by Azurite.

I/O: starts processes on free ports of the loopback and ends them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import pytest

AZURITE = Path(sys.prefix) / "azurite" / "node_modules" / ".bin" / "azurite-blob"
"""The path at which `make test-stores` installs Azurite."""
VERSITYGW = Path(sys.prefix) / "versitygw" / "versitygw"
"""The path at which `make test-s3` builds versitygw."""
ACCOUNT, ACCOUNT_KEY = "stratalog", base64.b64encode(b"of the emulator in these tests only").decode()
S3_KEY = "any"
CONTAINER = "tests"
START_S = 60
SERVERS = tuple(
    pytest.param(name, marks=pytest.mark.stores) for name in ("s3_server", "versity_server", "azure_server")
)
"""The fixtures that start the servers, for `parametrize`."""
_roots = itertools.count(1)


@dataclass(frozen=True)
class StoreServer:
    """A running server. Clients, in this process and in others, find it by `environment`."""

    url: str
    environment: Mapping[str, str]

    def new_root(self) -> str:
        """The URL of an empty folder."""
        return f"{self.url}/{os.getpid()}-{next(_roots)}"


def lacking() -> dict[str, str]:
    """The reason why a server cannot be started, by fixture; "" when it can."""
    has_node, has_azurite = shutil.which("node") is not None, AZURITE.exists()
    no_azurite = "Azurite is not installed: make test-stores" if has_node else "Azurite needs Node.js"
    return {
        "s3_server": "" if importlib.util.find_spec("moto") else "moto is not installed: make test-stores",
        "versity_server": "" if VERSITYGW.exists() else "versitygw is not built: make test-s3",
        "azure_server": "" if has_node and has_azurite else no_azurite,
    }


@contextmanager
def s3_server(host: str = "127.0.0.1") -> Iterator[StoreServer]:
    """moto's server with one bucket, at an address of this machine."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)]
    with _running(command, {}, port, host):
        _put(f"http://{host}:{port}/{CONTAINER}", {})
        yield StoreServer(f"s3://{CONTAINER}", _s3_environment(host, port))


@contextmanager
def versity_server(host: str = "127.0.0.1", port: int | None = None) -> Iterator[StoreServer]:
    """versitygw with one bucket, a folder of the temporary directory, at an address of this machine."""
    port, key = port or free_port(), {"ROOT_ACCESS_KEY": S3_KEY, "ROOT_SECRET_KEY": S3_KEY}
    with tempfile.TemporaryDirectory(prefix="versitygw-") as folder:
        (Path(folder) / CONTAINER).mkdir()
        command = [str(VERSITYGW), "--port", f"{host}:{port}", "--keep-alive", "--quiet", "posix", folder]
        with _running(command, key, port, host):
            yield StoreServer(f"s3://{CONTAINER}", _s3_environment(host, port))


@dataclass(frozen=True)
class VersityAccounts:
    """A versitygw with accounts: each has a bucket, named as it is, that the others may not use."""

    endpoint: str

    def add(self, name: str, secret: str) -> None:
        """An account with a bucket."""
        self._do("create-user", "--access", name, "--secret", secret, "--role", "user")
        self._do("create-bucket", "--owner", name, "--bucket", name)

    def change_secret(self, name: str, secret: str) -> None:
        """Requests with the old one are refused from now on."""
        self._do("update-user", "--access", name, "--secret", secret)

    def _do(self, *arguments: str) -> None:
        key = ("--access", S3_KEY, "--secret", S3_KEY, "--endpoint-url", self.endpoint)
        subprocess.run([str(VERSITYGW), "admin", *key, *arguments], check=True, capture_output=True, timeout=START_S)


@contextmanager
def versity_accounts() -> Iterator[VersityAccounts]:
    """versitygw with an accounts' file, and no account but its own."""
    port, key = free_port(), {"ROOT_ACCESS_KEY": S3_KEY, "ROOT_SECRET_KEY": S3_KEY}
    with tempfile.TemporaryDirectory(prefix="versitygw-") as folder:
        data, accounts = Path(folder) / "data", Path(folder) / "accounts"
        data.mkdir()
        accounts.mkdir()
        command = [str(VERSITYGW), "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet"]
        command += ["--iam-dir", str(accounts), "--iam-cache-disable", "posix", str(data)]
        with _running(command, key, port):
            yield VersityAccounts(f"http://127.0.0.1:{port}")


S3_SERVERS: dict[str, Callable[[str], AbstractContextManager[StoreServer]]] = {
    "s3_server": s3_server,
    "versity_server": versity_server,
}
"""What starts a server of S3 at an address, by fixture."""


def _s3_environment(host: str, port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": S3_KEY,
        "AWS_SECRET_ACCESS_KEY": S3_KEY,
    }


@contextmanager
def azure_server() -> Iterator[StoreServer]:
    """Azurite with one container, in memory."""
    port = free_port()
    command = [str(AZURITE), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    environment = {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
        "AZURE_STORAGE_ENDPOINT": endpoint,
        "AZURE_ALLOW_HTTP": "true",
    }
    with _running(command, {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}, port):
        _put(
            f"{endpoint}/{CONTAINER}?restype=container", _azure_headers(f"/{ACCOUNT}/{CONTAINER}", "restype:container")
        )
        yield StoreServer(f"az://{CONTAINER}", environment)


def _azure_headers(path: str, query: str) -> dict[str, str]:
    """A PUT without a body, signed with the account's key (Shared Key authorization of Blob Storage)."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    text = "PUT\n" + 11 * "\n" + f"{canonical}/{ACCOUNT}{path}\n{query}"
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    return {**headers, "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"}


def _put(url: str, headers: Mapping[str, str]) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=dict(headers)), timeout=START_S):
        pass


@contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], port: int, host: str = "127.0.0.1"
) -> Iterator[None]:
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until_it_listens(process, (host, port))
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_until_it_listens(process: subprocess.Popen[bytes], address: tuple[str, int]) -> None:
    """Raises RuntimeError when the process ends before, or takes too long."""
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(address, timeout=1).close()
            return
        except OSError as reason:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{process.args} does not listen, exit code {process.poll()}") from reason
            time.sleep(0.05)


def free_port() -> int:
    """A port of the loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
