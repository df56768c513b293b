"""`kafka-transactions`: what coordinators and partitions know of transactions, from storage, as Kafka prints it."""

from __future__ import annotations

import pytest

from stratalog.clients.admin.transactions import StoredTransactions
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.records.transactions import main, perform
from stratalog.replication.coordinator.transactions.records import transaction_record
from stratalog.replication.coordinator.transactions.transaction import Transaction, TransactionState
from stratalog.replication.internal_topics import TRANSACTION_STATE_TOPIC, partition_of_key
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.served_cluster import ServedCluster

T = [TopicPartition("t", number) for number in range(2)]
TRANSACTIONAL = 0x10


class Tool:
    """Topic `t`: producer 7 of `tx-1` has a transaction open in t-0 since offset 1; producer 9 in t-1, which no
    coordinator knows of. `tx-2` has committed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.cluster = MemoryCluster()
        self.now_ms = self.cluster.clock.wall_ms()
        self.cluster.create_topic("t", 2)
        self.states = self.cluster.create_topic(TRANSACTION_STATE_TOPIC, 3)
        begun_ms = self.now_ms - 5_000
        self.store(Transaction("tx-1", 7, 2, 60_000, TransactionState.ONGOING, frozenset(T[:1]), begun_ms, begun_ms))
        self.store(Transaction("tx-2", 8, 0, 60_000, TransactionState.COMPLETE_COMMIT, updated_ms=begun_ms))
        self.cluster.append(T[0], b"before")
        for partition, producer_id in ((T[0], 7), (T[1], 9)):
            rows = payload_table([(self.now_ms, None, b"v", None)])
            end = self.cluster.log(1, partition).log_end_offset
            batch = NewRecordBatch(rows, producer_id, 2, 0, attributes=TRANSACTIONAL, verified_offset=end)
            assert self.cluster.append_batch(partition, batch).error is None
            self.cluster.publish(partition)

    def store(self, transaction: Transaction) -> None:
        record = transaction_record(transaction)
        partition = self.states[partition_of_key(transaction.transactional_id, 3)]
        self.cluster.append_batch(partition, NewRecordBatch(payload_table([(1, record.key, record.value, None)])))
        self.cluster.publish(partition)

    def __call__(self, arguments: str, cluster: RunningCluster | None = None) -> tuple[int, list[list[str]], str]:
        """Exit code, the cells of each line on standard output, standard error."""
        view = ClusterView(ROOT, stores=self.cluster.stores, timeout_ms=0)
        self._capsys.readouterr()
        code = perform(main.checked(arguments.split()), view, StoredTransactions(view), cluster)
        out, err = self._capsys.readouterr()
        assert all(line.endswith("\t") for line in out.splitlines())
        return code, [[cell.strip() for cell in line.split("\t")[:-1]] for line in out.splitlines()], err


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


def test_transactional_ids_are_listed_with_coordinator_and_state(tool: Tool) -> None:
    headers = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert tool("list") == (0, [headers, ["tx-1", "1", "7", "Ongoing"], ["tx-2", "1", "8", "CompleteCommit"]], "")
    assert tool("list --duration-filter 1000")[1] == [headers, ["tx-1", "1", "7", "Ongoing"]]
    assert tool("list --duration-filter 3600000")[1] == [headers]


def test_a_transaction_is_described(tool: Tool) -> None:
    code, (headers, row), _ = tool("describe --transactional-id tx-1")
    found = dict(zip(headers, row, strict=True))
    assert code == 0
    assert 5_000 <= int(found.pop("TransactionDurationMs")) < 60_000
    assert found == {
        "CoordinatorId": "1",
        "TransactionalId": "tx-1",
        "ProducerId": "7",
        "ProducerEpoch": "2",
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": "60000",
        "CurrentTransactionStartTimeMs": str(tool.now_ms - 5_000),
        "TopicPartitions": "t-0",
    }
    assert tool("describe --transactional-id tx-2")[1][1][6:8] == ["None", "None"]
    code, _, err = tool("describe --transactional-id nope")
    assert code == 1
    assert err.startswith("Failed to describe transaction state of transactional-id `nope`: TRANSACTIONAL_ID_NOT_FOUND")


def test_producers_of_a_partition_are_described(tool: Tool) -> None:
    headers = ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"]
    code, lines, _ = tool("describe-producers --topic t --partition 0")
    assert code == 0
    assert lines[0] == [*headers, "CurrentTransactionStartOffset"]
    assert lines[1] == ["7", "2", "-1", "0", "1", "1"]  # this cluster's leaders append in the first millisecond of 1970
    assert tool("describe-producers --topic t --partition 0 --broker-id 1")[1] == lines
    code, _, err = tool("describe-producers --topic none --partition 0")
    assert code == 1
    assert err.startswith("Failed to describe producers for partition none-0 on leader: UNKNOWN_TOPIC_OR_PARTITION")


def test_a_transaction_that_no_coordinator_knows_of_hangs(tool: Tool) -> None:
    code, lines, _ = tool("find-hanging --topic t")
    assert (code, lines[0][-1]) == (0, "Duration(min)")
    assert [line[:6] for line in lines[1:]] == [["t", "1", "9", "2", "-1", "0"]]
    assert 0 <= int(lines[1][-1]) - tool.now_ms // 60_000 <= 1
    assert tool("find-hanging --broker-id 1")[1] == lines
    assert tool("find-hanging --broker-id 2")[1] == lines[:1]
    assert tool("find-hanging --topic t --max-transaction-timeout 100000000")[1] == lines[:1]


def test_a_hanging_transaction_is_aborted_by_the_leader(tool: Tool) -> None:
    with ServedCluster(tool.cluster) as served:
        code, lines, err = tool("abort --topic t --partition 1 --start-offset 4", served.remote)
        assert (code, lines) == (1, [])
        assert "Could not find any open transactions starting at offset 4 on partition t-1" in err
        assert tool("abort --topic t --partition 1 --start-offset 0", served.remote) == (0, [], "")
    assert tool("find-hanging --topic t")[1][1:] == []
    assert tool.cluster.log(1, T[1]).read(0, 1 << 20).to_pylist()[-1]["key"] == b"\0\0\0\0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("describe", "argument --transactional-id is required"),
        ("describe-producers --topic t", "argument --partition is required"),
        ("find-hanging", "requires either --topic or --broker-id to limit the scope of the search"),
        ("find-hanging --partition 1 --broker-id 1", "The --partition argument requires --topic to be provided"),
        ("abort --topic t --partition 0", "argument --start-offset is required"),
    ],
)
def test_what_is_missing_is_said(tool: Tool, arguments: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tool(arguments)


def test_a_command_is_needed() -> None:
    with pytest.raises(UsageError, match="too few arguments"):
        main.call(["--root", "r"])
