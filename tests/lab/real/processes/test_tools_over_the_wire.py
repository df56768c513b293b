"""Every tool against three processes with SASL and TLS: the same over `--bootstrap-server` and over `--root`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.jobs.command.properties import read_properties
from stratalog.jobs.topics import configs
from stratalog.server.bootstrap import addresses_by_listener
from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.server.view.cluster_view import ClusterView
from tests.jobs.both_ways import CHANGES, SAME, Served, answers, changed, descriptions, prepare
from tests.lab.real.harness.broker_processes import BrokerProcesses
from tests.server.remote.test_brokers_apart import SETTINGS, secured

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("wire")
    settings, client = secured(folder)
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in client.items()))
    users = {**SETTINGS, **settings, "super.users": "User:alice;User:broker"}
    with BrokerProcesses(folder, users) as running:
        for name in ("broker", "alice"):
            login = f"SCRAM-SHA-512=[iterations=4096,password={name}s secret]"
            flags = ["--root", running.metadata_root, "--alter", "--entity-type", "users", "--entity-name", name]
            assert configs.main.call([*flags, "--add-config", login]) == 0
        with RemoteCluster(running.metadata_root, read_properties(str(file))) as remote:
            prepare(remote)
        brokers = ClusterView(running.metadata_root).image.brokers
        registered = [brokers[each].registration.endpoint or "" for each in sorted(brokers)]
        (addresses,) = addresses_by_listener(registered).values()
        yield Served(running.metadata_root, addresses, login=("--command-config", str(file)))


@pytest.fixture
def served(cluster: Served, capsys: pytest.CaptureFixture[str]) -> Served:
    return Served(cluster.root, cluster.servers, capsys, cluster.login)


@pytest.mark.parametrize("words", SAME)
def test_both_ways_say_the_same(served: Served, words: str) -> None:
    by_root, over_wire = answers(served, words)
    assert (over_wire.code, over_wire.out) == (by_root.code, by_root.out)


def test_changes_say_and_do_the_same(served: Served, tmp_path: Path) -> None:
    for words, files in CHANGES:
        said = changed(served, words, files, tmp_path)
        assert said["wire"] == said["root"], words
        if "--delete " not in words:  # a deletion goes on behind the answer
            described = descriptions(served)
            assert described[1] == described[0], words


def test_a_wrong_password_is_refused_at_once(served: Served, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(Path(served.login[1]).read_text().replace("alices secret", "guessed"))
    refused = Served(served.root, served.servers, served.capsys, ("--command-config", str(wrong))).say("wire", "topics")
    assert refused.code == 1
    assert "ERROR SASL_AUTHENTICATION_FAILED" in refused.err
