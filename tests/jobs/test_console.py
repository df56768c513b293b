"""`strata console`: where it may listen, and that it serves until it is asked to end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.console import check_listener, main
from stratalog.storage.extras import explained

WAIT_S = 60


def check(*words: str) -> None:
    check_listener(main.checked(["--root", "r", *words]))


def test_an_address_that_others_reach_needs_tls() -> None:
    check()
    check("--listen", "[::1]:80")
    check("--listen", "0.0.0.0:80", "--allow-plaintext")
    for address in ("0.0.0.0:80", "[::]:80", "10.0.0.1:80", "console.example:80"):
        with pytest.raises(UsageError, match="without TLS"):
            check("--listen", address)


def test_a_listener_is_host_and_port(tmp_path: Path) -> None:
    for address in ("8088", "localhost", "localhost:x", "localhost:99999"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            check("--listen", address)
    with pytest.raises(UsageError, match="no file"):
        check("--tls-certificate", str(tmp_path / "c"), "--tls-key", str(tmp_path / "k"))
    with pytest.raises(UsageError, match="--tls-key"):
        check("--tls-certificate", str(tmp_path / "c"))


def test_without_the_extra_it_names_it() -> None:
    text = str(explained("strata console", ModuleNotFoundError("", name="starlette.applications")))
    assert text == "strata console needs the package starlette: pip install 'stratalog[console]'"


def test_it_serves_a_root_without_brokers_until_it_is_asked_to_end(tmp_path: Path) -> None:
    made = "from stratalog import Cluster; Cluster.start({!r}, 1, fetcher='thread', progress=None).stop()"
    subprocess.run([sys.executable, "-c", made.format(str(tmp_path / "c"))], check=True, timeout=WAIT_S)
    words = ["console", "--root", str(tmp_path / "c" / "metadata"), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([sys.executable, "-m", "stratalog", *words], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found is not None, line
        with urllib.request.urlopen(found[0], timeout=WAIT_S) as answer:
            assert "Overview" in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) in (0, 143, -signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()
