"""Whether a loop is busy: by the bytes of the last seconds, in and out, and by reads alone for a while only."""

from __future__ import annotations

import pytest

from stratalog.replication import cadence
from stratalog.replication.replica.load import BUSY_BYTES_PER_S, Load

MEBIBYTE = 1 << 20
FAST, SLOW = 2 * BUSY_BYTES_PER_S, BUSY_BYTES_PER_S // 2


class Measured:
    """A load that is measured every `step_ms`."""

    def __init__(self, step_ms: int = 500) -> None:
        self.load = Load(0)
        self.step_ms = step_ms
        self.now_ms = self.appended_bytes = self.read_bytes = 0

    def busy_after(self, duration_ms: int, appended_per_s: int = 0, read_per_s: int = 0) -> list[bool]:
        """The answers of so much time at these rates."""
        answers = []
        for _ in range(duration_ms // self.step_ms):
            self.now_ms += self.step_ms
            self.appended_bytes += appended_per_s * self.step_ms // 1_000
            self.read_bytes += read_per_s * self.step_ms // 1_000
            answers.append(self.load.is_busy(self.now_ms, self.appended_bytes, self.read_bytes))
        return answers


@pytest.mark.parametrize(
    ("appended_per_s", "read_per_s", "is_busy"),
    [(0, 0, False), (SLOW, 0, False), (FAST, 0, True), (0, SLOW, False), (0, FAST, True), (SLOW, FAST, True)],
)
def test_rates_in_and_out_count(appended_per_s, read_per_s, is_busy):
    assert Measured().busy_after(10_000, appended_per_s, read_per_s)[-1] is is_busy


@pytest.mark.parametrize("step_ms", [3, 500, 1_000])
def test_a_burst_counts_for_the_window(step_ms):
    measured = Measured(step_ms)
    assert measured.busy_after(6_000, appended_per_s=20 * MEBIBYTE)[-1]
    after = measured.busy_after(2 * cadence.LOAD_WINDOW.ms)
    busy_ms = after.index(False) * step_ms
    assert cadence.LOAD_WINDOW.ms / 2 < busy_ms <= cadence.LOAD_WINDOW.ms + 500
    assert not any(after[after.index(False) :])


def test_small_bursts_now_and_then_do_not_count():
    """A query that writes 8 MiB every five seconds: merges would otherwise never begin."""
    measured = Measured()
    for _ in range(10):
        measured.busy_after(500, appended_per_s=16 * MEBIBYTE)
        assert not measured.busy_after(4_500)[-1]


def test_reads_alone_count_for_a_while_and_again_after_they_paused():
    measured = Measured()
    _, *answers = measured.busy_after(10 * cadence.READS_HOLD_MERGES.ms, read_per_s=FAST)
    assert answers.index(False) * measured.step_ms == cadence.READS_HOLD_MERGES.ms
    assert not any(answers[answers.index(False) :])
    assert measured.busy_after(500, appended_per_s=100 * MEBIBYTE, read_per_s=FAST) == [True], "writes always count"
    measured.busy_after(2 * cadence.LOAD_WINDOW.ms)
    assert measured.busy_after(cadence.LOAD_WINDOW.ms, read_per_s=FAST)[-1]
