"""A compacted log against a dict: random appends, tombstones, copies, merges, elections, readers, pieces of passes."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from stratalog.storage.log.append import Appended, BatchAppended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import CONTROL_ATTRIBUTE
from tests.storage.cleaned_replicas import BROKERS, CleanedReplicas, config_of
from tests.storage.keyed import Rows, keyed, shown

RETENTION_MS = 10_000
PRODUCER = 7


class Sent(NamedTuple):
    key: str
    value: str | None
    sequence: int | None


def table_of(rows: Rows) -> dict[str, str]:
    """The values after applying these records in order."""
    table: dict[str, str] = {}
    for _, key, value in rows:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


class Reading:
    """A consumer of one replica, which is refreshed only if a file is gone."""

    def __init__(self, log: LogReader) -> None:
        self.log = log
        self.offset = 0
        self.rows: Rows = []


class Model(CleanedReplicas[Sent]):
    """The sent records, when they were first cleaned, and the readers."""

    def __init__(self, seed: int, root: Path | None) -> None:
        super().__init__(random.Random(seed), root, config_of(RETENTION_MS))
        self.first_cleaned: dict[str, dict[int, int]] = {broker: {} for broker in BROKERS}
        self.readings = [Reading(self.replicas.log(broker)) for broker in ("1", "2", "1", "2")]
        self.passes = 0

    def append(self) -> None:
        self._append(sequence=None)

    def append_idempotent(self) -> None:
        """The producer continues where the new leader's log ends, as its retries would."""
        known = [sent.sequence for sent in self.sent[self.leader] if sent.sequence is not None]
        self._append(sequence=max(known, default=-1) + 1)

    def _append(self, sequence: int | None) -> None:
        new: list[Sent] = []
        for _ in range(self.rng.randint(1, 4)):
            self.values += 1
            value = None if self.rng.random() < 0.25 else str(self.values)
            key = self.rng.choice("abcdefghijklmnopqrstuvwxyz")
            new.append(Sent(key, value, None if sequence is None else sequence + len(new)))
        words = " ".join(sent.key + ("" if sent.value is None else f"={sent.value}") for sent in new)
        batch = keyed(words) if sequence is None else keyed(words, producer_id=PRODUCER, sequence=sequence)
        own = self.sent[self.leader]
        outcome = self.logs[self.leader].append([batch], self.epoch, self.now_ms)
        assert isinstance(outcome, Appended)
        assert outcome.results == (BatchAppended(len(own), len(own) + len(new) - 1),)
        own += new

    def clean(self) -> None:
        broker = self.rng.choice(BROKERS)
        for _ in range(self.rng.choice([1, 1, 12])):
            self.clean_on(broker)

    def clean_on(self, broker: str) -> None:
        log = self.logs[broker]
        clean_to = log.state.cleaner.first_dirty_offset
        super().clean_on(broker)
        if log.state.cleaner.first_dirty_offset > clean_to and broker != "3":
            self.passes += 1
            self.check_clean_section(broker)

    def check_clean_section(self, broker: str) -> None:
        """After a pass: of each key the latest cleaned record, and of tombstones the young ones.

        An interrupted pass before it may have reached further, so that a key's latest record is above.
        """
        log = self.logs[broker]
        end, now_ms = log.state.cleaner.passes[-1]
        latest = {sent.key: offset for offset, sent in enumerate(self.sent[broker][:end])}
        shows = {offset for offset, _, _ in shown(log) if offset < end}
        first, later = self.first_cleaned[broker], {sent.key for sent in self.sent[broker][end : self.high_watermark]}
        for offset, sent in enumerate(self.sent[broker][:end]):
            if sent.value is not None or latest[sent.key] != offset:
                assert offset not in shows or latest[sent.key] == offset, (offset, sent)
                assert offset in shows or latest[sent.key] != offset or sent.key in later, (offset, sent)
                continue
            age_ms = now_ms - first.setdefault(offset, now_ms)
            assert offset in shows or age_ms >= RETENTION_MS or sent.key in later, (offset, age_ms)
            assert offset not in shows or age_ms <= RETENTION_MS * 9 / 8, (offset, age_ms)

    def read(self) -> None:
        reading = self.rng.choice(self.readings)
        if self.rng.random() < 0.3 or reading.log.leader_epoch != self.epoch:  # as clients do after an election
            reading.log.refresh()
        bound = min(self.high_watermark, reading.log.log_end_offset)
        if reading.offset >= bound:
            return
        rows = reading.log.read(reading.offset, self.rng.choice([1, 500]), bound)
        columns = (rows[name].to_pylist() for name in ("offset", "key", "value", "attributes"))
        for offset, key, value, attributes in zip(*columns, strict=True):
            if not attributes & CONTROL_ATTRIBUTE:
                reading.rows.append((offset, key.decode(), None if value is None else value.decode()))
        reading.offset = rows["offset"][-1].as_py() + 1 if rows.num_rows else bound
        self.check_reading(reading)

    def check_reading(self, reading: Reading) -> None:
        """Records come in order, as they were sent; of keys that are not written later, the latest one is among them.

        A reader slower than `delete.retention.ms` may miss a tombstone, as in Kafka.
        """
        sent = self.sent[self.leader][: reading.offset]
        offsets = [offset for offset, _, _ in reading.rows]
        assert offsets == sorted(set(offsets))
        assert all(sent[offset][:2] == (key, value) for offset, key, value in reading.rows)
        table, expected = table_of(reading.rows), table_of([(o, s.key, s.value) for o, s in enumerate(sent)])
        other = {s.key for first in self.first_cleaned.values() for o, s in enumerate(sent) if self._is_aged(first, o)}
        other |= {later.key for later in self.sent[self.leader][reading.offset :]}
        assert {k: v for k, v in table.items() if k not in other} == {
            k: v for k, v in expected.items() if k not in other
        }

    def _is_aged(self, first_cleaned: dict[int, int], offset: int) -> bool:
        return offset in first_cleaned and first_cleaned[offset] + RETENTION_MS <= self.now_ms

    def check_replica(self, broker: str, log: PartitionLog) -> None:
        rows, sent = shown(log, max_bytes=self.rng.choice([1, 1 << 20])), self.sent[broker]
        assert all(sent[offset][:2] == (key, value) for offset, key, value in rows)
        assert table_of(rows) == table_of([(o, s.key, s.value) for o, s in enumerate(sent)])
        assert log.log_end_offset == len(sent)
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        ends = [(entry.start_offset, entry.end_offset) for entry in log.files]
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))

    def run(self, steps: int) -> None:
        actions = [self.append] * 6 + [self.append_idempotent] * 3 + [self.copy] * 6 + [self.clean] * 10
        actions += [self.upkeep] * 4 + [self.read] * 6 + [self.check] * 2 + [self.copy_late, self.elect]
        for _ in range(steps):
            self.replicas.clock.sleep_ms(2_000)
            self.rng.choice(actions)()
        self.check()


@pytest.mark.parametrize("seed", range(30))
def test_a_compacted_log_in_memory_is_a_dict(seed):
    model = Model(seed, None)
    model.run(250)
    assert model.passes > 0


@pytest.mark.parametrize("seed", range(3))
def test_a_compacted_log_on_delta_is_a_dict(seed, tmp_path):
    model = Model(seed, tmp_path)
    model.run(150)
    assert model.passes > 0
