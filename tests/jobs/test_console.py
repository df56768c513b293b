"""`strata console`: where it may listen, and that it serves until it is asked to end."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.cluster import main as cluster_tool
from stratalog.jobs.command.listen_at import check_listener
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.console import main
from stratalog.jobs.console_port import check_console
from stratalog.storage.extras import explained
from tests.clients.console.asked_cluster import password_of
from tests.server.endpoint.security.certificate_authority import CertificateAuthority
from tests.waiting import wait_until

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


def test_a_port_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ImportError, match=r"--console needs the package uvicorn: pip install 'stratalog\[console\]'"):
        check_console(cluster_tool.checked(["--console"]))


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


def test_a_port_of_brokers_is_checked_before_they_start() -> None:
    def check_port(*words: str) -> None:
        check_console(cluster_tool.checked(list(words)))

    check_port()
    check_port("--console", "127.0.0.1:0")
    with pytest.raises(UsageError, match="HOST:PORT"):
        check_port("--console", "8088")
    with pytest.raises(UsageError, match="Give --console-tls-certificate"):
        check_port("--console", "0.0.0.0:0")
    with pytest.raises(UsageError, match="needs --console"):
        check_port("--console-allow-changes")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="cannot be listened at"):
        check_port("--console", f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_cluster_has_the_console_beside_it_as_long_as_it_runs(tmp_path: Path) -> None:
    words = ["cluster", "--path", str(tmp_path / "c"), "--brokers", "1", "--fetcher", "thread"]
    process = subprocess.Popen(
        [sys.executable, "-m", "stratalog", *words, "--console", "127.0.0.1:0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stderr.readline())
        assert found is not None
        with urllib.request.urlopen(f"{found[0]}api/overview", timeout=WAIT_S) as answer:
            assert [each["is_running"] for each in json.load(answer)["brokers"]] == [True]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{found[0]}change/create_topic", timeout=WAIT_S)
        process.kill()  # not even then does the child stay
        process.wait(WAIT_S)
        wait_until(lambda: not answers(found[0]), "the end of the console")
    finally:
        process.kill()
        process.communicate()


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    pem = authority.issue("console")
    made = "from stratalog import Cluster; Cluster.start({!r}, 1, fetcher='thread', progress=None).stop()"
    subprocess.run([sys.executable, "-c", made.format(str(tmp_path / "c"))], check=True, timeout=WAIT_S)
    words = ["--root", str(tmp_path / "c" / "metadata"), "--tls-certificate", str(pem), "--tls-key", str(pem)]
    process = subprocess.Popen(
        [sys.executable, "-m", "stratalog", "console", *words, "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        found = re.search(r"https://127\.0\.0\.1:(\d+)/", process.stderr.readline())
        assert found is not None
        place = ("127.0.0.1", int(found[1]))
        before = ssl.get_server_certificate(place)
        assert before.strip() in pem.read_text()
        authority.issue("console")
        wait_until(lambda: ssl.get_server_certificate(place).strip() in pem.read_text(), "the renewed certificate")
        assert ssl.get_server_certificate(place) != before
        trusting = ssl.create_default_context(cafile=str(authority.authority))
        with urllib.request.urlopen(found[0], timeout=WAIT_S, context=trusting) as answer:
            assert answer.status == 200
    finally:
        process.kill()
        process.communicate()


SECURED = """
listeners = "INSIDE://127.0.0.1:0"
"listener.security.protocol.map" = "INSIDE:SASL_PLAINTEXT"
"inter.broker.listener.name" = "INSIDE"
"sasl.enabled.mechanisms" = "PLAIN"
"sasl.mechanism.inter.broker.protocol" = "PLAIN"
"sasl.jaas.config" = '''
org.apache.kafka.common.security.plain.PlainLoginModule required
  username="broker" password="a = b" user_broker="a = b";
'''
"authorizer.class.name" = "StandardAuthorizer"
"offsets.topic.replication.factor" = 1
"super.users" = "User:broker;User:ann"
"""


def test_a_console_beside_brokers_that_ask_for_a_login_calls_them_as_they_call_each_other(tmp_path: Path) -> None:
    (tmp_path / "secured.toml").write_text(SECURED, encoding="utf-8")
    words = ["cluster", "--path", str(tmp_path / "c"), "--brokers", "1", "--fetcher", "thread", "--topic", "orders:1"]
    words += ["--config", str(tmp_path / "secured.toml"), "--console", "127.0.0.1:0", "--console-allow-changes"]
    process = subprocess.Popen(
        [sys.executable, "-m", "stratalog", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found is not None, line
        Admin(str(tmp_path / "c" / "metadata")).alter_user_scram_credentials(
            upsertions=[password_of("ann", "long one")]
        )
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

        def posted(path: str, **fields: str) -> str:
            page = browser.open(found[0] + path, timeout=WAIT_S).read().decode()
            token = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
            assert token is not None, page
            form = urllib.parse.urlencode({**fields, "csrf": token[1]}).encode()
            return str(browser.open(found[0] + path.partition("?")[0], form, timeout=WAIT_S).read().decode())

        posted("/login", name="ann", password="long one", next="/")
        assert "at offset 0" in posted("/change/produce?topic=orders", topic="orders", value="v")
        moved = {"group": "g", "to": "earliest", "topic": "orders"}
        assert "orders" in posted(f"/change/reset_group?{urllib.parse.urlencode(moved)}", **moved)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=WAIT_S)
    assert "a = b" not in errors


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=WAIT_S).close()
    except urllib.error.URLError:
        return False
    return True
