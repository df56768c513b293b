"""The log-dirs tool: sizes as they are on storage, lags below the high watermark, roots that are gone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.replicas.log_dirs import main
from stratalog.jobs.text.storage_cost import costs_of_roots
from stratalog.replication.folders import topic_folder
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord, StorageDomainRecord, TopicRecord
from stratalog.replication.price_lists import price_book
from stratalog.server.admin.log_dirs import LogDirDescription, ReplicaInfo
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import BrokerNotAvailableError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.clients.still_cluster import StillCluster
from tests.storage.logs import write

TOPIC_ID = "0123456789abcdef" * 2
TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    """Broker 1 has five records of t-0, broker 2 the first three of them; u-0 is empty and on broker 1 alone."""
    made = StillCluster(tmp_path)
    made.create_topic("t", 1)
    made.create_topic("u", 1)
    made.commit(TP, ["a", "b", "c"])
    copy = made.log(TP, 2)
    copy.exists_or_create("id-of-t")
    copy.start_epoch(0, as_leader=False)
    copy.copy_from(made.log(TP, 1), 0, 1 << 30)
    made.commit(TP, ["d", "e"])
    return made


def on_disk(cluster: StillCluster, broker_id: int) -> int:
    return sum(file.stat().st_size for file in Path(cluster.roots[broker_id]).glob("t-0/segment=*/**/*.parquet"))


def described(cluster: StillCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[int, Any]:
    """The one log directory of each broker, as the tool prints it."""
    assert main(["--root", cluster.root, "--describe", *arguments]) == 0
    first, second, line = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert first == "Querying brokers for log directories information"
    ids = [broker["broker"] for broker in found["brokers"]]
    assert second == f"Received log directory information from brokers {','.join(map(str, ids))}"
    assert found["version"] == 1
    assert all(len(broker["logDirs"]) == 1 for broker in found["brokers"])
    return {broker["broker"]: broker["logDirs"][0] for broker in found["brokers"]}


def replica(name: str, size: int, lag: int) -> dict[str, Any]:
    return {"partition": name, "size": size, "offsetLag": lag, "isFuture": False}


def test_each_replica_has_its_size_and_lag(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    found = described(cluster, capsys)
    assert found[1] == {
        "logDir": cluster.roots[1],
        "error": None,
        "partitions": [replica("t-0", on_disk(cluster, 1), 0), replica("u-0", 0, 0)],
    }
    assert found[2]["partitions"] == [replica("t-0", on_disk(cluster, 2), 2)]
    assert 0 < on_disk(cluster, 2) < on_disk(cluster, 1)


def test_the_one_table_of_a_storage_domain_is_counted_once(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    lake = StorageDomainRecord("lake", str(tmp_path / "lake"), durable=True)
    led = PartitionRecord("d", 0, (1, 2), 2, 0, (1, 2), 0, 1, domain="lake")
    states = [led, replace(led, partition=1, leader=NO_LEADER, isr=(2,))]
    cluster.commit_metadata(lake, TopicRecord("d", TOPIC_ID), *states)
    for each in states:
        table = cluster.stores.table(f"{tmp_path}/lake/{topic_folder('d', TOPIC_ID)}", each.topic_partition)
        log = PartitionLog(table, LogConfig(), cluster.clock, RandomIds())
        log.exists_or_create(TOPIC_ID)
        log.start_epoch(0, as_leader=True)
        write(log, "a", "b")
    found = described(cluster, capsys, "--topic-list", "d")
    size = {each["partition"]: each["size"] for each in found[2]["partitions"]}
    assert sum(size.values()) == sum(file.stat().st_size for file in (tmp_path / "lake").rglob("*.parquet"))
    assert min(size.values()) > 0
    for broker_id, sizes in ((1, {"d-0": 0, "d-1": 0}), (2, size)):
        assert found[broker_id]["partitions"] == [
            {**replica(name, each, 0), "domain": "lake"} for name, each in sizes.items()
        ]


def test_brokers_and_topics_are_chosen(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    found = described(cluster, capsys, "--broker-list", "1", "--topic-list", "u, none")
    assert list(found) == [1]
    assert found[1]["partitions"] == [replica("u-0", 0, 0)]


def test_a_root_that_is_gone_is_an_error_and_the_others_are_told(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(cluster.roots[2]).rename(cluster.roots[2] + "-away")
    found = described(cluster, capsys)
    assert found[2]["error"].startswith("LOG_DIR_NOT_FOUND: ")
    assert found[2]["partitions"] == []
    assert len(found[1]["partitions"]) == 2


def test_a_table_that_cannot_be_read_has_no_size(cluster: StillCluster) -> None:
    for commit in Path(cluster.roots[2]).glob("t-0/_delta_log/*.json"):
        commit.write_bytes(b"\xff")
    found = Admin(cluster.root).describe_log_dirs([2])
    assert found[2].replicas == {TP: ReplicaInfo(-1, -1)}


def test_an_unknown_broker_is_refused(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", cluster.root, "--describe", "--broker-list", "1,7"]) == 1
    error = capsys.readouterr().err
    assert "The given brokers do not exist from --broker-list: 7. Current existent brokers: 1,2" in error
    with pytest.raises(BrokerNotAvailableError, match="no broker 7, only 1,2"):
        Admin(cluster.root).describe_log_dirs([7])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic-list", "t"], r'Missing required argument "[describe]"'),
        (["--describe", "--broker-list", "one"], "not 'one'"),
    ],
)
def test_what_cannot_be_is_refused(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["--root", cluster.root, *arguments]) == 1
    assert message in capsys.readouterr().err


FREE = {"prices": "local-disk", "pricesReadOn": "2026-12-01", "storageDollarsPerMonth": 0, "requestDollarsPerDay": 0}


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], Any]:
    """The lines of costs, and the JSON."""
    *lines, last = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith(("Cost of", "The cost of"))], json.loads(last)


def test_a_disk_costs_nothing_and_the_tool_says_so(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", cluster.root, "--describe", "--cost"]) == 0
    lines, found = printed(capsys)
    assert lines == [
        f"Cost of broker 1, {cluster.roots[1]}: 0.00 GiB by local-disk, which cost nothing, as do requests",
        f"Cost of broker 2, {cluster.roots[2]}: 0.00 GiB by local-disk, which cost nothing, as do requests",
        f"Cost of the metadata root, {cluster.root}: 0.00 GiB by local-disk, which cost nothing, as do requests",
    ]
    cost = found["brokers"][0]["logDirs"][0]["cost"]
    stored = sum(file.stat().st_size for file in Path(cluster.roots[1]).rglob("*") if file.is_file())
    assert cost == {**FREE, "storedBytes": stored, "lacks": ""}
    assert stored > on_disk(cluster, 1), "commits count, too"
    assert found["metadataRoot"]["cost"]["storedBytes"] > 0


def test_an_operators_prices_make_a_cost_of_storage(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[nas]\nschemes = ["file"]\nread_on = 2026-11-01\nstorage = 1_000_000\n', encoding="utf-8")
    assert main(["--root", cluster.root, "--describe", "--cost", "--prices", str(own), "--broker-list", "1"]) == 0
    lines, found = printed(capsys)
    cost = found["brokers"][0]["logDirs"][0]["cost"]
    assert cost["storageDollarsPerMonth"] == pytest.approx(1_000_000 * cost["storedBytes"] / (1 << 30))
    assert cost["requestDollarsPerDay"] is None
    assert "a month by nas, read on 2026-11-01" in lines[0]
    assert lines[-1].startswith("The cost of requests is counted by each broker: stratalog_store_cost_dollars_total")


def test_an_unknown_list_of_prices_is_refused(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", cluster.root, "--describe", "--cost", "--prices", "cheap"]) == 1
    assert "no list of prices 'cheap'; known: s3-standard-us-east-1, " in capsys.readouterr().err
    assert main(["--root", cluster.root, "--describe", "--prices", "local-disk"]) == 1
    assert "--prices is for --cost" in capsys.readouterr().err


def test_over_the_wire_the_data_files_alone_are_priced_and_that_is_said() -> None:
    described = {1: LogDirDescription("s3://logs/broker-1", {TP: ReplicaInfo(3 << 30, 0), OTHER: ReplicaInfo(-1, -1)})}
    (cost,) = costs_of_roots(None, described, price_book()).values()
    assert (cost.stored_bytes, cost.dollars_per_month) == (3 << 30, pytest.approx(0.069))
    assert cost.line("broker 1") == (
        "Cost of broker 1, s3://logs/broker-1: 3.00 GiB for $0.0690 a month by s3-standard-us-east-1, read on "
        "2026-12-01; the data files alone, a storage domain's with their leader: --root instead of --bootstrap-server "
        "counts every object where it is"
    )
    gone = {1: LogDirDescription("abfss://a@b/c", error=BrokerNotAvailableError("away"))}
    (cost,) = costs_of_roots(None, gone, price_book()).values()
    assert (cost.stored_bytes, cost.dollars_per_month, cost.lacks) == (None, None, "the root cannot be read")


def test_a_list_without_a_price_of_storage_is_named_with_its_source() -> None:
    described = {1: LogDirDescription("abfss://a@b/c", {TP: ReplicaInfo(1 << 30, 0)})}
    (cost,) = costs_of_roots(None, described, price_book()).values()
    assert cost.to_json()["storageDollarsPerMonth"] is None
    assert "adls-gen2 lists no price of storage; its source is https://azure.microsoft.com/" in cost.line("broker 1")
