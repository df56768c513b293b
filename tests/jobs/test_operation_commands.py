"""The tools for operating a cluster as a user has them: processes of their own beside a cluster that runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.test_commands import start_cluster
from tests.jobs.tool_processes import WAIT_S, Ended, call

RECORDS = 20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a cluster that runs, with a topic `t` of 20 records."""
    folder = tmp_path_factory.mktemp("tools") / "cluster"
    process = start_cluster(folder)
    made = on(folder, "topics", "--create", "--topic", "t", "--partitions", "2", "--replication-factor", "3")
    assert made.out == "Created topic t.\n"
    lines = "".join(f"record {number}\n" for number in range(RECORDS))
    assert on(folder, "produce", "--topic", "t", lines=lines).code == 0
    yield folder
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=WAIT_S)


def on(folder: Path, tool: str, *arguments: str, lines: str = "") -> Ended:
    return call(tool, *arguments, "--root", f"{folder}/metadata", lines=lines)


def test_an_altered_config_holds_at_once(path: Path) -> None:
    done = on(path, "configs", "--alter", "--topic", "t", "--add-config", "max.message.bytes=200")
    assert done == Ended(0, "Completed updating config for topic t.\n", "")
    refused = on(path, "produce", "--topic", "t", "--sync", lines="x" * 1_000 + "\n")
    assert "MESSAGE_TOO_LARGE" in refused.err
    assert on(path, "configs", "--alter", "--topic", "t", "--delete-config", "max.message.bytes").code == 0
    assert on(path, "configs", "--describe", "--topic", "t").out == "Dynamic configs for topic t are:\n"


def test_all_brokers_take_an_altered_setting(path: Path) -> None:
    brokers = ("--entity-type", "brokers", "--entity-default")
    assert on(path, "configs", "--alter", *brokers, "--add-config", "num.partitions=4").code == 0
    assert on(path, "topics", "--create", "--topic", "four").out == "Created topic four.\n"
    assert "PartitionCount: 4\t" in on(path, "topics", "--describe", "--topic", "four").out


def test_replicas_are_verified_beside_running_brokers(path: Path) -> None:
    done = on(path, "replica-verification", "--once", "--topics-include", "t")
    assert done.code == 0
    first, last = done.out.splitlines()
    assert first.endswith(": verification process is started.")
    assert ": max lag is " in last
    assert last.endswith(" among 2 partitions")


def test_log_dirs_are_told(path: Path) -> None:
    line = on(path, "log-dirs", "--describe", "--topic-list", "t").out.splitlines()[-1]
    described = {broker["broker"]: broker["logDirs"][0] for broker in json.loads(line)["brokers"]}
    assert {i: log_dir["logDir"] for i, log_dir in described.items()} == {i: f"{path}/broker-{i}" for i in (1, 2, 3)}
    assert all(log_dir["error"] is None for log_dir in described.values())
    assert all({p["partition"] for p in log_dir["partitions"]} == {"t-0", "t-1"} for log_dir in described.values())


def test_state_changes_are_merged(path: Path) -> None:
    log = f"{path}/logs/state-change.log"
    done = call("state-change-log-merger", "--logs", log, "--topic", "t", "--partitions", "1")
    assert done.code == 0
    lines = done.out.splitlines()
    assert len([line for line in lines if " became leader: " in line]) == 1
    assert len([line for line in lines if " became follower: " in line]) == 2
    assert lines == sorted(lines, key=lambda line: line[:25])


def test_the_leader_of_an_offset_is_told(path: Path) -> None:
    described = on(path, "topics", "--describe", "--topic", "t").out.splitlines()[1:]
    offsets = [int(line.rsplit(":", 1)[1]) for line in on(path, "get-offsets", "--topic", "t").out.splitlines()]
    partition = offsets.index(max(offsets))
    leader = described[partition].split("Leader: ")[1].split("\t")[0]
    done = on(path, "who-led", "--offset", f"t:{partition}:{max(offsets) - 1}")
    assert done.code == 0
    assert f"\tLeader: {leader}\tLeaderEpoch: 0\t" in done.out
    assert "\tAcknowledged: in leader epoch 0\t" in done.out
    beyond = on(path, "who-led", "--offset", f"t:{partition}:1000")
    assert beyond.code == 1
    assert f"t-{partition}: offset 1000 is beyond the log, which ends at {max(offsets)}" in beyond.err


def test_storage_domains_are_added_and_forgotten(path: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert on(path, "metadata", "domains").out == ""
    added = on(path, "metadata", "domains", "--add", "lake", "--url", str(lake), "--durable")
    assert added.out.split("\t")[:3] == ["Domain: lake", f"Url: {lake.as_uri()}", "Durable: true"]
    listed = on(path, "metadata", "domains", "--json")
    assert json.loads(listed.out)["url"] == lake.as_uri()
    assert on(path, "metadata", "domains", "--remove", "lake").out == ""
    assert not list(lake.glob("*.json"))
    refused = on(path, "metadata", "domains", "--remove", "lake")
    assert (refused.code, "there is no storage domain 'lake'" in refused.err) == (1, True)
    refused = on(path, "metadata", "domains", "--add", "lake")
    assert 'Missing required argument "[url]"' in refused.err


def test_the_metadata_log_is_backed_up_beside_running_brokers(path: Path, tmp_path: Path) -> None:
    done = on(path, "metadata", "backup", "--output", str(tmp_path / "backup"))
    assert done.code == 0
    assert done.out.startswith("Backed up cluster ")
    kinds = [json.loads(line).get("record", {}).get("type") for line in (tmp_path / "backup").read_text().splitlines()]
    assert kinds.count("Partition") >= 2
    refused = on(path, "metadata", "restore", "--input", str(tmp_path / "backup"))
    assert refused.code == 1
    assert "holds __cluster_metadata-0: a backup is restored into an empty root" in refused.err
