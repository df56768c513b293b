"""One log against a plain list, by Hypothesis, under all operations and kills of its process.

Random appends, transactions, truncations, retention, record deletion, merges, compactions, checkpoints and clean-ups;
the process dies between any two storage calls of any of them, and the next one continues from storage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stratalog.storage.delta.table import Committed
from stratalog.storage.log.append import Appended, BatchAppended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TRANSACTIONAL_ATTRIBUTE, NewRecordBatch
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits
from stratalog.storage.upkeep.cleaner import SHARED_TURN
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.examples import examples
from tests.storage.keyed import Rows, keyed, shown
from tests.storage.logs import Replicas, idempotent

RUNS, STEPS = 150, 50
"""More than 10,000 steps that act on the log."""
LIMITS = UpkeepLimits(
    checkpoint_commits=4,
    keep_commits=2,
    keep_ms=5_000,
    garbage_ms=8_000,
    retention_check_ms=3_000,
    merge_files_min=2,
    merge_spread_files=0,
)
COMMON = {
    "segment.files.max": 3,
    "file.delete.delay.ms": 1_000,
    "stratalog.snapshot.retention.ms": 0,
    "min.cleanable.dirty.ratio": 0.1,
}
CONFIGS = {
    "keep": {"retention.ms": -1},
    "delete": {"retention.ms": -1, "retention.bytes": 4_000},
    "compact": {"cleanup.policy": "compact", "delete.retention.ms": 4_000},
    "compact,delete": {"cleanup.policy": "compact,delete", "retention.ms": -1, "retention.bytes": 6_000},
}
PRODUCER = 7
TRANSACTIONAL_IDS = (8, 9)
VERIFIED = 1 << 40
"""An offset above any log end: the coordinator has verified the partition."""


class Killed(Exception):  # noqa: N818 - not an error of the product: it must not be caught
    """The process stops."""


class Record(NamedTuple):
    key: str
    value: str | None
    batch_base: int
    producer: int | None = None
    is_commit: bool | None = None


class Outcomes(NamedTuple):
    """The transactions in a list of records.

    open     first offset by producer
    ended    (producer, first offset, marker's offset), in order of the last; `aborted`: those of them
    """

    open: dict[int, int]
    ended: list[tuple[int, int, int]]
    aborted: list[tuple[int, int, int]]

    @staticmethod
    def of(records: list[Record]) -> Outcomes:
        found = Outcomes({}, [], [])
        for offset, record in enumerate(records):
            if record.producer not in TRANSACTIONAL_IDS:
                continue
            if record.is_commit is None:
                found.open.setdefault(record.producer, offset)
            elif record.producer in found.open:
                found.ended.append((record.producer, found.open.pop(record.producer), offset))
                if not record.is_commit:
                    found.aborted.append(found.ended[-1])
        return found

    def stable(self, high_watermark: int) -> int:
        undecided = [first for _, first, last in self.ended if last >= high_watermark]
        return min([high_watermark, *undecided, *self.open.values()])

    def is_aborted(self, offset: int, record: Record) -> bool:
        return any(who == record.producer and first <= offset <= last for who, first, last in self.aborted)


class LogMachine(RuleBasedStateMachine):
    """`records` is every record from offset 0 on, whatever expired or was compacted since; from `cleaned_end` on
    nothing was ever compacted."""

    @initialize(policy=st.sampled_from(sorted(CONFIGS)))
    def begin(self, policy: str) -> None:
        self.config = LogConfig.from_properties({**COMMON, **CONFIGS[policy]})
        self.replicas = Replicas.new()
        self.records: list[Record] = []
        self.log_start, self.high_watermark, self.cleaned_end, self.epoch, self.value = 0, 0, 0, -1, 0
        self.calls_left: int | None = None
        self.open()
        self.elect(None)

    def open(self) -> None:
        """A new process on the same storage."""
        SHARED_TURN.reset()
        self.log = self.replicas.log("1", self.config)
        self.replicas.disks["1"].access = self.access
        self.upkeep = Upkeep(self.log, LIMITS)

    def access(self, _operation: str, _table: str, _detail: str) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Killed

    def killed_in(self, act: Callable[[], None], calls_left: int | None) -> bool:
        """Act, and die after so many storage calls; whether that happened. Then a new process has folded the log."""
        self.calls_left = calls_left
        try:
            act()
        except Killed:
            self.calls_left = None
            self.open()
            self.log.refresh()
            return True
        finally:
            self.calls_left = None
        return False

    kills = st.one_of(st.none(), st.integers(0, 12))

    # -- operations on the log ---------------------------------------------------------------------------

    @rule(kill=kills)
    def elect(self, kill: int | None) -> None:
        self.epoch += 1
        if self.killed_in(self._start, kill):
            self._start()

    def _start(self) -> None:
        if self.log.leader_epoch < self.epoch:
            assert isinstance(self.log.start_epoch(self.epoch, as_leader=True), Committed)

    @rule(keys=st.text("abcdefgh", min_size=1, max_size=4), tombstone=st.booleans(), own=st.booleans(), kill=kills)
    def append(self, keys: str, tombstone: bool, own: bool, kill: int | None) -> None:
        """A batch is in the log wholly or not at all; an idempotent one that is sent again is there once."""
        base = len(self.records)
        if own:
            first = self._next_sequence(PRODUCER)
            words = [chr(ord("p") + index) for index in range(len(keys))]
            new = [Record(word, word, base, PRODUCER) for word in words]
            batch = idempotent(words, first, PRODUCER)
        else:
            self.value += 1
            new = [Record(key, None if tombstone else str(self.value), base) for key in keys]
            batch = keyed(_words(new))
        self._put(batch, new, kill, is_sent_again=own)

    @rule(
        producer=st.sampled_from(TRANSACTIONAL_IDS),
        keys=st.text("abcdefgh", min_size=1, max_size=3),
        tombstone=st.booleans(),
        kill=kills,
    )
    def append_in_transaction(self, producer: int, keys: str, tombstone: bool, kill: int | None) -> None:
        """The next transaction begins when the marker of the one before is committed, as the coordinator ensures."""
        last = max((last for who, _, last in Outcomes.of(self.records).ended if who == producer), default=-1)
        self.high_watermark = max(self.high_watermark, last + 1)
        self.value += 1
        base = len(self.records)
        new = [Record(key, None if tombstone else str(self.value), base, producer) for key in keys]
        batch = keyed(
            _words(new),
            producer_id=producer,
            sequence=self._next_sequence(producer),
            attributes=TRANSACTIONAL_ATTRIBUTE,
        )
        self._put(
            replace(batch, verified_offset=VERIFIED, verified_leader_epoch=self.epoch),
            new,
            kill,
            is_sent_again=True,
        )

    @rule(producer=st.sampled_from(TRANSACTIONAL_IDS), is_commit=st.booleans(), kill=kills)
    def end_transaction(self, producer: int, is_commit: bool, kill: int | None) -> None:
        if producer in Outcomes.of(self.records).open:
            marker = marker_batch(producer, 0, EndMarker(is_commit, 0), self.replicas.clock.now_ms)
            self._put(marker, [Record("", None, len(self.records), producer, is_commit)], kill, is_sent_again=False)

    def _next_sequence(self, producer: int) -> int:
        return sum(record.producer == producer and record.is_commit is None for record in self.records)

    def _put(self, batch: NewRecordBatch, new: list[Record], kill: int | None, *, is_sent_again: bool) -> None:
        answers: list[object] = []

        def act() -> None:
            outcome = self.log.append([batch], self.epoch, self.replicas.clock.now_ms)
            assert isinstance(outcome, Appended)
            answers.extend(outcome.results)

        first_offset, last_offset = len(self.records), len(self.records) + len(new) - 1
        if self.killed_in(act, kill):
            assert self.log.log_end_offset in (first_offset, last_offset + 1)
            if self.log.log_end_offset == first_offset:
                return
            if is_sent_again:  # the producer has no answer
                act()
                assert answers == [BatchAppended(first_offset, last_offset, duplicate=True)]
        else:
            assert answers == [BatchAppended(first_offset, last_offset)]
        self.records += new

    @rule(share=st.floats(0.5, 1.0), kill=kills)
    def truncate(self, share: float, kill: int | None) -> None:
        """As a follower under a new leader: the epoch's first commit removes the records after the end of a batch.

        Never records below a high watermark: upkeep and record deletion rely on that.
        """
        self.epoch += 1
        before = len(self.records)
        cut = int(share * before)
        cut = self.records[cut].batch_base if cut < before else cut
        if cut < self.high_watermark:
            cut = before

        def act() -> None:
            if self.log.leader_epoch < self.epoch:
                assert isinstance(self.log.start_epoch(self.epoch, as_leader=False, truncate_to=cut), Committed)

        if self.killed_in(act, kill):
            assert self.log.log_end_offset == (cut if self.log.leader_epoch == self.epoch else before)
            act()
        assert self.log.log_end_offset == cut
        del self.records[cut:]
        self.elect(None)

    @rule(share=st.floats(0.0, 1.0), kill=kills)
    def delete_records(self, share: float, kill: int | None) -> None:
        """The log start moves up, as after admin.delete_records."""
        wanted = self.log_start + int(share * (len(self.records) - self.log_start) / 4)
        self.high_watermark = max(self.high_watermark, wanted)

        def act() -> None:
            outcome = self.log.replace_files(
                (),
                (),
                leader_epoch=self.epoch,
                operation="DELETE RECORDS",
                now_ms=self.replicas.clock.now_ms,
                data_change=True,
                log_start=wanted,
            )
            assert isinstance(outcome, Committed)

        if self.killed_in(act, kill):
            assert self.log.log_start_offset in (self.log_start, wanted)
        else:
            assert self.log.log_start_offset == wanted
        self.log_start = self.log.log_start_offset

    @rule(steps=st.integers(1, 8), unseen=st.integers(0, 3), kill=kills)
    def look_after(self, steps: int, unseen: int, kill: int | None) -> None:
        """Upkeep: whichever of checkpoint, clean-up, deletion, retention, compaction and merge is due."""
        self.high_watermark = high_watermark = max(self.high_watermark, len(self.records) - unseen)

        def act() -> None:
            for _ in range(steps):
                done: UpkeepDone | None = self.upkeep.step(self.replicas.clock.now_ms, high_watermark, self.epoch)
                if done is None:
                    return

        self.killed_in(act, kill)
        self.cleaned_end = max(self.cleaned_end, min(high_watermark, self.active_base))
        assert self.log_start <= self.log.log_start_offset <= max(self.log_start, high_watermark)
        assert self.log.log_start_offset == self.log_start or self.config.is_deleted
        self.log_start = self.log.log_start_offset

    @property
    def active_base(self) -> int:
        """The start of the active segment, which is not compacted."""
        return self.log.segments[-1].base_offset if self.log.segments else len(self.records)

    @rule(duration_ms=st.integers(100, 9_000))
    def wait(self, duration_ms: int) -> None:
        self.replicas.clock.sleep_ms(duration_ms)

    @rule()
    def restart(self) -> None:
        self.open()

    # -- invariants ------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_what_the_list_says(self) -> None:
        if not hasattr(self, "log"):
            return
        for log in (self.log, self.replicas.log("1", self.config)):
            assert (log.log_start_offset, log.log_end_offset) == (self.log_start, len(self.records))
            self._check(shown(log), log)
            self._check_transactions(log)

    def _check_transactions(self, log: PartitionLog) -> None:
        """The end of committed reads, and the records that they omit; compaction removes aborted records."""
        outcomes = Outcomes.of(self.records)
        stable = max(self.log_start, outcomes.stable(self.high_watermark))
        assert max(self.log_start, log.last_stable_offset(self.high_watermark)) == stable
        known = [tuple(each) for each in log.producers.transactions.aborted if each.last_offset >= self.log_start]
        expected = [each for each in outcomes.aborted if each[2] >= self.log_start]
        if self.config.is_compacted:
            assert set(known) <= set(expected)
            expected = [each for each in expected if each[2] >= self.cleaned_end]
            known = [each for each in known if each[2] >= self.cleaned_end]
        assert known == expected

    def _check(self, rows: Rows, log: PartitionLog) -> None:
        """Every record that is read is the one that was sent there, in order. Without compaction none is missing."""
        records = [(offset, r.key, r.value) for offset, r in enumerate(self.records) if r.is_commit is None]
        expected = [row for row in records if row[0] >= self.log_start]
        if not self.config.is_compacted:
            assert rows == expected
            return
        offsets = [offset for offset, _, _ in rows]
        assert offsets == sorted(set(offsets))
        assert set(rows) <= set(expected)
        assert log.state.cleaner.first_dirty_offset <= self.cleaned_end
        untouched = max(self.cleaned_end, self.log_start)
        assert [row for row in rows if row[0] >= untouched] == [row for row in expected if row[0] >= untouched]
        outcomes = Outcomes.of(self.records)
        counted = [row for row in expected if not outcomes.is_aborted(row[0], self.records[row[0]])]
        rows = [row for row in rows if not outcomes.is_aborted(row[0], self.records[row[0]])]
        latest = {key: (offset, key, value) for offset, key, value in counted}
        assert {row for row in latest.values() if row[2] is not None} <= set(rows), "of each key the latest stays"
        deleted = {key for key, (_, _, value) in latest.items() if value is None}
        assert {key: value for _, key, value in rows if key not in deleted} == {
            key: value for key, (_, _, value) in latest.items() if key not in deleted
        }
        if self.log_start == 0:  # else the tombstone may have been deleted with the log's start
            applied = {key: value for _, key, value in rows}
            assert all(applied.get(key) is None for key in deleted), "a deleted key does not come back"


def _words(records: list[Record]) -> str:
    return " ".join(r.key if r.value is None else f"{r.key}={r.value}" for r in records)


LogMachine.TestCase.settings = settings(
    max_examples=examples(RUNS),
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    print_blob=True,
)
TestLogMachine = LogMachine.TestCase
