"""dump-log prints Kafka's lines of what lies on storage, names what is damaged, and refuses what it does not know."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.replicas.dump_log import main
from stratalog.jobs.text.dump import (
    DumpKind,
    DumpName,
    OffsetGaps,
    Shown,
    dump_name,
    index_line,
    log_lines,
    time_index_line,
)
from stratalog.storage.delta.table import Commit
from stratalog.storage.files.batch_file import crc_of_path
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import Header, NewRecordBatch, data_table, payload_table
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.cleaned_transactions import DELETE_HORIZON
from tests.storage.log.test_replication import merge
from tests.storage.logs import Replicas, append, batch, idempotent, started

ROOT = "/logs/broker-1"
TABLE = f"{ROOT}/nginx_access_log-1"
DIGITS = "00000000000003257573"
PLACED = f"segment={DIGITS}/leader_epoch=3/base_offset=12/a.0.parquet"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("", DumpName("", ROOT, "nginx_access_log-1")),
        ("/", DumpName("/", ROOT, "nginx_access_log-1")),
        (f"/segment={DIGITS}", DumpName("", ROOT, "nginx_access_log-1", DumpKind.LOG, 3257573)),
        (f"/{DIGITS}.log", DumpName("", ROOT, "nginx_access_log-1", DumpKind.LOG, 3257573)),
        (f"/{DIGITS}.index", DumpName("", ROOT, "nginx_access_log-1", DumpKind.INDEX, 3257573)),
        (f"/{DIGITS}.timeindex", DumpName("", ROOT, "nginx_access_log-1", DumpKind.TIME_INDEX, 3257573)),
        (
            f"/segment={DIGITS}/a.0.parquet",
            DumpName("", ROOT, "nginx_access_log-1", DumpKind.LOG, 3257573, f"segment={DIGITS}/a.0.parquet"),
        ),
        (
            f"/{PLACED}",
            DumpName("", ROOT, "nginx_access_log-1", DumpKind.LOG, 3257573, PLACED),
        ),
        ("/_producers", DumpName("", ROOT, "nginx_access_log-1", DumpKind.PRODUCERS)),
        ("/cleaner-offset-checkpoint", DumpName("", ROOT, "nginx_access_log-1", DumpKind.CLEANER)),
        (
            "/_producers/00000000000000ff.json",
            DumpName(
                "", ROOT, "nginx_access_log-1", DumpKind.PRODUCERS, path="_producers/00000000000000ff.json"
            ),
        ),
        (f"/{DIGITS}.snapshot", None),
        ("/_delta_log", None),
        ("/12.log", None),
    ],
)  # fmt: skip
def test_what_a_name_stands_for(name: str, found: DumpName | None) -> None:
    made = dump_name(TABLE + name)
    assert (made is None) is (found is None)
    if made is not None and found is not None:
        assert made == DumpName(TABLE + name, found.root, found.table, found.kind, found.segment, found.path)


@pytest.mark.parametrize(
    ("name", "root"), [("t-0", "."), ("a/t-0", "./a"), ("s3://b/p/t-0", "s3://b/p"), ("t", None), ("a/meta.json", None)]
)
def test_roots_of_names(name: str, root: str | None) -> None:
    found = dump_name(name)
    assert (found.root if found else None) == root


def file(base: int, end: int) -> FileEntry:
    path = f"segment={DIGITS}/f.0000ffff.parquet"
    return FileEntry(DataFile(path, 10, end - base, 0, end - base - 1, 0, 0), 3257573, 4, base)


def test_index_entries_as_the_article_shows_them() -> None:
    assert index_line(file(3257573, 3257688), 17413) == "offset: 3257687 position: 17413"
    assert time_index_line(1570792689308, file(3257573, 3257686)) == "timestamp: 1570792689308 offset: 3257685"


def lines_of(batches: list[NewRecordBatch], shown: Shown) -> list[str]:
    return list(log_lines(data_table(batches), file(100, 200), 17413, "zstd", shown, OffsetGaps()))


HEADERS = [Header("h1", b"x"), Header("h2", None)]
TWO = [
    NewRecordBatch(payload_table([(7, b"key", b"value", HEADERS), (None, None, None, None)]), 9, 2, 40),
    NewRecordBatch(payload_table([(5, None, b"v", None)])),
]
FIRST_METADATA = "| offset: 100 CreateTime: 7 keySize: 3 valueSize: 5 sequence: 40 headerKeys: [h1,h2]"
FIRST = (
    "baseOffset: 100 lastOffset: 101 count: 2 baseSequence: 40 lastSequence: 41 producerId: 9 producerEpoch: 2 "
    "partitionLeaderEpoch: 4 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
    "position: 17413 CreateTime: 7 size: {} magic: 2 compresscodec: zstd crc: 65535 isvalid: true"
)
SECOND = (
    "baseOffset: 102 lastOffset: 102 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
    "partitionLeaderEpoch: 4 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
    "position: 17413 CreateTime: 5 size: {} magic: 2 compresscodec: zstd crc: 65535 isvalid: true"
)


def sized(line: str, start: int, end: int) -> str:
    """The line with what these rows of the file are in Arrow's bytes."""
    rows = data_table(TWO).slice(start, end - start)
    return line.format(rows.select(["timestamp", "key", "value", "headers"]).nbytes)


@pytest.mark.parametrize(
    ("shown", "of_first", "of_second"),
    [
        (Shown(), [], []),
        (
            Shown(records=True),
            [
                FIRST_METADATA,
                "| offset: 101 CreateTime: -1 keySize: -1 valueSize: -1 sequence: 41 headerKeys: []",
            ],
            ["| offset: 102 CreateTime: 5 keySize: -1 valueSize: 1 sequence: -1 headerKeys: []"],
        ),
        (
            Shown(records=True, contents=True),
            [
                f"{FIRST_METADATA} key: key payload: value",
                "| offset: 101 CreateTime: -1 keySize: -1 valueSize: -1 sequence: 41 headerKeys: []",
            ],
            ["| offset: 102 CreateTime: 5 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: v"],
        ),
        (
            Shown(records=True, contents=True, record_metadata=False),
            ["| key: key payload: value", ""],
            ["| payload: v"],
        ),
    ],
)
def test_batches_and_records(shown: Shown, of_first: list[str], of_second: list[str]) -> None:
    assert lines_of(TWO, shown) == [sized(FIRST, 0, 2), *of_first, sized(SECOND, 2, 3), *of_second]


def test_control_records_say_how_a_transaction_ended() -> None:
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 12)
    marker = NewRecordBatch(payload_table([(1, key, value, None)]), 9, 2, attributes=0x30)
    line, record = lines_of([marker], Shown(records=True, contents=True))
    assert "isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty" in line
    assert record == (
        "| offset: 100 CreateTime: 1 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: COMMIT coordinatorEpoch: 12"
    )


def test_a_marker_that_compaction_will_take_shows_its_delete_horizon_as_a_batch_of_kafka_does() -> None:
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 12)
    marked = NewRecordBatch(payload_table([(1, key, value, [Header(DELETE_HORIZON, b"86400001")])]), 9, 2)
    marker, record = lines_of([replace(marked, attributes=0x30)], Shown(records=True))
    assert "isControl: true deleteHorizonMs: OptionalLong[86400001] position: 17413" in marker
    assert "headerKeys: [] endTxnMarker: COMMIT" in record
    own, record = lines_of([marked], Shown(records=True))
    assert "deleteHorizonMs: OptionalLong.empty" in own, "a header of the user's"
    assert f"headerKeys: [{DELETE_HORIZON}]" in record


def test_a_batch_whose_first_records_compaction_removed_keeps_its_base() -> None:
    rows = data_table([idempotent("abcd", 40)]).slice(2)
    line = next(log_lines(rows, file(100, 104), 0, "none", Shown(), OffsetGaps()))
    assert line.startswith("baseOffset: 100 lastOffset: 103 count: 2 baseSequence: 40 lastSequence: 43 ")


# -- logs on storage -------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "1" / "t-0"


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Two segments under two epochs: offsets 0 to 2 in two files, 3 and 4 in one."""
    made = Replicas.new(tmp_path).leader(config=LogConfig.from_properties({"segment.files.max": 2}))
    append(made, batch("ab", timestamps=[20, 10]))
    append(made, idempotent("c", 0))
    started(made, 1)
    append(made, batch("de", timestamps=[30, 40]), epoch=1)
    return made


def dumped(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    code = main.call(arguments)
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


def test_a_log_is_dumped_segment_by_segment(log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = dumped(capsys, "--files", str(table))
    assert (code, errors) == (0, "")
    assert [line for line in lines if not line.startswith("baseOffset")] == [
        f"Dumping {table}/00000000000000000000.log",
        "Log starting offset: 0",
        f"Dumping {table}/00000000000000000003.log",
        "Log starting offset: 3",
    ]
    first, second, third = (line for line in lines if line.startswith("baseOffset"))
    assert "position: 0 " in first
    assert f"position: {log.files[0].file.size_bytes} " in second
    assert "producerId: 7 producerEpoch: 0 partitionLeaderEpoch: 0 " in second
    assert "partitionLeaderEpoch: 1 " in third
    assert f"compresscodec: none crc: {int(crc_of_path(log.files[2].path), 16)} isvalid: true" in third


def test_one_segment_in_our_and_in_kafkas_spelling(
    log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = dumped(capsys, "--files", f"{table}/segment={3:020}", "--print-data-log")
    kafkas = dumped(capsys, "--files", f"{table}/{3:020}.log", "--print-data-log")
    assert ours[1][1:] == kafkas[1][1:]
    assert [line.rpartition("payload: ")[2] for line in ours[1] if line.startswith("|")] == ["d", "e"]
    one_file = dumped(capsys, "--files", f"{table}/{log.files[1].path}", "--deep-iteration")
    assert [line.split()[2] for line in one_file[1] if line.startswith("|")] == ["2"]


def test_the_indexes_of_a_segment(log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = f"{table}/{0:020}.index,{table}/{0:020}.timeindex"
    size = log.files[0].file.size_bytes
    assert dumped(capsys, "--files", names)[1] == [
        f"Dumping {table}/{0:020}.index",
        "offset: 1 position: 0",
        f"offset: 2 position: {size}",
        f"Dumping {table}/{0:020}.timeindex",
        "timestamp: 20 offset: 1",
        "timestamp: 1000 offset: 2",
    ]
    assert dumped(capsys, "--files", names, "--verify-index-only") == (
        0, [f"Dumping {name}" for name in names.split(",")], ""
    )  # fmt: skip
    name = f"{table}/{0:020}.index"
    assert dumped(capsys, "--files", name, "--index-sanity-check")[1] == [
        f"Dumping {name}",
        f"{name} passed sanity check.",
    ]


def test_producers_at_the_logs_end(log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    title, producer = dumped(capsys, "--files", f"{table}/_producers")[1]
    assert title == f"Dumping {table}/_producers"
    assert producer == (
        "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 5000 firstSequence: 0 lastSequence: 0 lastOffset: 2 offsetDelta: 0 timestamp: 5000"
    )


def test_how_far_a_log_is_compacted(log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cleaner = log.state.cleaner.after_pass(3, now_ms=9_000, delete_retention_ms=86_400_000)
    txns = cleaner.txns_after(log.state.cleaner)
    log.table.commit(log.version + 1, Commit("cleaned", "COMPACT", 9_000, txns=txns))
    code, lines, errors = dumped(capsys, "--files", f"{table}/cleaner-offset-checkpoint")
    topic, _, number = table.name.rpartition("-")
    assert (code, errors) == (0, "")
    assert lines == [
        f"Dumping {table}/cleaner-offset-checkpoint",
        f"{topic} {number} 3",
        "compacted: 3 at: 9000",
        "tombstonesGone: 0 abortedGone: 0",
    ]


def test_max_bytes_leaves_out_what_begins_behind(
    log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = log.files[0].file.size_bytes
    name = f"{table}/{0:020}.log"
    for max_bytes, batches in ((1, 1), (size, 1), (size + 1, 2)):
        lines = dumped(capsys, "--files", name, "--max-bytes", str(max_bytes))[1]
        assert sum(line.startswith("baseOffset") for line in lines) == batches


def test_a_flipped_bit_and_a_file_that_is_gone_are_shown_as_invalid(
    log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, gone = (table / log.files[i].path for i in (0, 2))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    os.unlink(gone)
    code, lines, errors = dumped(capsys, "--files", str(table), "--deep-iteration")
    shown = [line for line in lines if line.startswith("baseOffset")]
    assert [line.rpartition(" ")[2] for line in shown] == ["false", "true", "false"]
    assert shown[0].startswith("baseOffset: 0 lastOffset: 1 count: 2 ")
    assert code == 1
    assert f"ERROR CORRUPT_MESSAGE: file://{damaged}" in errors
    assert f"{gone} does not exist" in errors
    assert dumped(capsys, "--files", f"{table}/{3:020}.index", "--index-sanity-check")[0] == 1


def test_gaps_in_the_offsets_are_told_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Replicas.new(tmp_path).leader()
    append(log, batch("a"))
    append(log, batch("b"))
    append(log, batch("c"))
    removed = [log.files[1]]
    log.replace_files(removed, [], leader_epoch=0, operation="COMPACT", now_ms=1, data_change=True)
    name = f"{tmp_path}/1/t-0/{0:020}.log"
    assert dumped(capsys, "--files", name)[2] == ""
    assert dumped(capsys, "--files", name, "--deep-iteration")[2] == (
        f"Non-consecutive offsets in {name}\n  0 is followed by 2\n"
    )


def test_a_dump_goes_on_while_files_are_merged_away(
    log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stratalog.jobs.replicas import dump_log as module

    shown = iter(module.LogDump(_target(table), module.main.parse(["--files", "x"]), module.Findings()).lines())
    before = [next(shown) for _ in range(3)]
    old = [entry.path for entry in log.files[:2]]
    merge(log, 0, 1, epoch=1)
    log.table.delete_objects(old)
    after = list(shown)
    assert before[2].startswith("baseOffset: 0 lastOffset: 1 ")
    assert [line.split()[1] for line in after if line.startswith("baseOffset")] == ["0", "2", "3"]


def _target(table: Path) -> DumpName:
    found = dump_name(str(table))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", r'Missing required argument "\[files\]"'),
        ("--files a-0 --transaction-log-decoder", "transaction-log-decoder is not a recognized option"),
        ("--files a-0 --offsets-decoder --cluster-metadata-decoder", "can't be used with option"),
        ("--files a-0 --key-decoder-class Avro", "Failed to load decoder class Avro"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        main.call(arguments.split())


def test_what_is_not_there_is_named(log: PartitionLog, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dumped(capsys, "--files", "nothing.txt") == (0, [], "Ignoring unknown file nothing.txt\n")
    code, _, errors = dumped(capsys, "--files", f"{table.parent}/other-7")
    assert (code, "UNKNOWN_TOPIC_OR_PARTITION" in errors) == (1, True)
    with pytest.raises(UsageError, match="the log has no such segment; its newest are: 00000000000000000000, "):
        main.call(["--files", f"{table}/{9:020}.log"])
    with pytest.raises(UsageError, match="no commit of the log names this file"):
        main.call(["--files", f"{table}/segment={0:020}/x.00000000.parquet"])
