"""The control plane with 10,000 partitions: `tests.simulation.scale` measures, this checks its figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.scale import figures


def test_a_failover_is_one_commit_and_a_successor_folds_the_same_image(tmp_path: Path) -> None:
    failover, refold, fold = figures(tmp_path, partitions=500, records=2_000)
    assert (failover.partition_records, failover.commits) == (500, 1)
    assert refold.partition_records == 1_000
    assert fold.partition_records >= 2_000


@pytest.mark.slow
@pytest.mark.long
def test_ten_thousand_partitions_fail_over_in_a_second(tmp_path: Path) -> None:
    assert [figure for figure in figures(tmp_path, partitions=10_000, records=100_000) if not figure.is_met] == []
