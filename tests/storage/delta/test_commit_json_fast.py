"""The fast twin writes and reads a commit exactly as `commit_json` does, or leaves it to that."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from stratalog.storage.delta.commit_json import decode_commit, encode_commit
from stratalog.storage.delta.commit_json_fast import decode_fast, encode_fast
from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.table import EPOCH_PREFIX, LEADER_EPOCH, LOG_END, LOG_START, PRODUCERS, Commit
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.producers import BatchMetadata, ProducerChanges, SinkBatch
from stratalog.storage.transactions import BEGIN, TransactionChange

BATCH = BatchMetadata(3, 5, 10, 12, 1_700_000_000_000)
PRODUCERS_OF_COMMIT = (
    None,
    ProducerChanges(((77, 0, BATCH),)),
    ProducerChanges((((1 << 63) - 1, -1, BatchMetadata(-1, -1, 13, 13, 5)),)),
    ProducerChanges(((77, 0, BATCH), (78, 3, BatchMetadata(-1, -1, 13, 13, 5)))),
    ProducerChanges((), (), (TransactionChange(77, BEGIN, 10),)),
)
TIMES = ((0, 0), (-1, 1), (1_700_000_000_001, 1_700_000_000_999), (-62_135_596_800_000, 253_402_300_799_999))
FILE = DataFile("segment=00000000000000000007/ab-1.00ffee11.parquet", 1_400, 3, 1, 4, 5, 9)


def stored(file: DataFile = FILE, producers: ProducerChanges | None = None) -> StoredCommit:
    txns = {LOG_END: 15, LEADER_EPOCH: 2, LOG_START: 0, f"{EPOCH_PREFIX}2": -1, PRODUCERS: (1 << 63) - 1}
    return StoredCommit(Commit("1f", "WRITE", 77, (FileEntry(file, 7, 2, 10),), txns=txns, producers=producers), "0e")


def test_the_commit_of_an_append_or_a_copy_is_written_and_read_as_by_commit_json() -> None:
    for (least, greatest), producers in itertools.product(TIMES, PRODUCERS_OF_COMMIT):
        given = stored(replace(FILE, min_timestamp_ms=least, max_timestamp_ms=greatest), producers)
        written = encode_commit(given)
        assert encode_fast(given) == written
        assert decode_fast(written) == decode_commit(written, "t") == given


def test_odd_names_are_written_as_json_has_them() -> None:
    for odd in ('odd "id"', "back\\slash", "ä\n", ""):
        usual = stored(replace(FILE, path=odd))
        commit = replace(usual.commit, operation=odd, commit_id=odd, txns={odd: 1})
        for given in (StoredCommit(commit, odd), StoredCommit(replace(commit, txns={}), odd)):
            assert encode_fast(given) == encode_commit(given)


def test_other_commits_are_left_to_commit_json() -> None:
    usual = stored()
    commit = usual.commit
    others = [
        replace(usual, previous_id=None),
        replace(usual, properties={"stratalog.topic-id": "t"}),
        stored(replace(FILE, min_timestamp_ms=None, max_timestamp_ms=None)),
        stored(producers=ProducerChanges((), (("a sink", SinkBatch(1, 2, 3)),))),
        *(
            replace(usual, commit=changed)
            for changed in (
                replace(commit, adds=()),
                replace(commit, adds=commit.adds * 2),
                replace(commit, removes=("old",)),
                replace(commit, data_change=False),
                replace(commit, commit_id='odd "id"'),
            )
        ),
    ]
    for other in others:
        assert encode_fast(other) in (None, encode_commit(other))
        assert decode_fast(encode_commit(other)) is None


def test_every_cut_and_every_flipped_bit_is_noticed() -> None:
    data = encode_commit(stored(producers=PRODUCERS_OF_COMMIT[3]))
    assert all(decode_fast(data[:kept]) is None for kept in range(len(data)))
    flips = random.Random(3)
    for _ in range(2_000):
        flipped = bytearray(data)
        flipped[flips.randrange(len(data))] ^= 1 << flips.randrange(8)
        assert decode_fast(bytes(flipped)) is None
