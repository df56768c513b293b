from __future__ import annotations

import pytest

from storage.merges import plan_merges
from storage.table import DataFile, FileEntry

MIB = 1 << 20


def run(counts, *, base=0, segment=0, epoch=0, bytes_each=None) -> list[FileEntry]:
    """Neighbouring files with so many records each, 100 bytes a record unless said otherwise."""
    files = []
    for count in counts:
        size = bytes_each or count * 100
        files.append(FileEntry(DataFile(f"{base}", size, count, 0, count - 1, 1, 1), segment, epoch, base))
        base += count
    return files


def merged(files, high_watermark=1 << 40, bytes_max=128 * MIB) -> list[list[int]]:
    return [[e.base_offset for e in plan.files] for plan in plan_merges(files, high_watermark, bytes_max)]


@pytest.mark.parametrize(
    ("counts", "plan"),
    [
        pytest.param([1] * 15, [], id="too few files"),
        pytest.param([1] * 16, [list(range(16))], id="sixteen equal files"),
        pytest.param([100] + [1] * 15, [], id="one file holds nearly everything"),
        pytest.param([100] + [1] * 16, [list(range(100, 116))], id="the small files after a large one"),
        pytest.param([16] * 8 + [1] * 8, [[16 * i for i in range(8)] + list(range(128, 136))], id="eight merged ones"),
    ],
)
def test_a_growing_run_is_merged_when_every_file_grows_eightfold(counts, plan):
    assert merged(run(counts)) == plan


def test_files_above_the_high_watermark_are_left_alone():
    assert merged(run([1] * 20), high_watermark=15) == []
    assert merged(run([1] * 20), high_watermark=18) == [list(range(18))]


def test_runs_end_at_segments_and_epochs_and_closed_runs_are_merged_to_the_end():
    files = [*run([1, 1]), *run([5, 1], base=2, epoch=1), *run([1], base=8, segment=8, epoch=1)]
    assert merged(files) == [[0, 1], [2, 7]]
    assert merged(run([1, 1])) == []


def test_a_closed_run_leaves_full_files_and_fits_the_rest_together():
    files = [*run([6, 2, 3, 4, 9, 1, 1], bytes_each=None), *run([1], base=26, segment=26)]
    assert merged(files, bytes_max=1_000) == [[6, 8, 11]]


def test_no_merge_makes_a_file_larger_than_allowed():
    assert merged(run([10] * 40), bytes_max=20_000) == [[10 * i for i in range(20)]]
    assert merged(run([10] * 40), bytes_max=15_000) == []
    assert merged(run([1] * 40), bytes_max=0) == []


def test_deltas_of_a_merged_file_fit_into_32_bits():
    files = run([1 << 28] * 17, bytes_each=10)
    assert merged(files) == [], "sixteen of them would span 2^32 offsets"
    assert merged([*files, *run([1], base=1 << 40, segment=1 << 40)]) == [[i << 28 for i in range(8)]]


def test_few_files_stay_and_a_record_is_rewritten_a_few_times():
    files: list[FileEntry] = []
    rewritten, most, appended = 0, 0, 20_000
    for base in range(appended):
        files += run([1], base=base)
        while plans := plan_merges(files, base + 1, 128 * MIB):
            parts = plans[0].files
            at = files.index(parts[0])
            count = sum(e.file.record_count for e in parts)
            rewritten += count
            files[at : at + len(parts)] = run([count], base=parts[0].base_offset)
        most = max(most, len(files))
    assert most < 64
    assert rewritten / appended < 6
