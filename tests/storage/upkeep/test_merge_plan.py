from __future__ import annotations

import pytest

from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.upkeep.merge_plan import FILES_MAX, plan_copied_merges, plan_merges

MIB = 1 << 20


def run(counts, *, base=0, segment=0, epoch=0, bytes_each=None) -> list[FileEntry]:
    """Neighbouring files with so many records each, 100 bytes a record unless said otherwise."""
    files = []
    for count in counts:
        size = bytes_each or count * 100
        files.append(
            FileEntry(DataFile(f"{base}-{base + count}", size, count, 0, count - 1, 1, 1), segment, epoch, base)
        )
        base += count
    return files


def merged(files, high_watermark=1 << 40, bytes_max=32 * MIB) -> list[list[int]]:
    plans = plan_merges(files, high_watermark, bytes_max, files_min=16)
    return [[e.base_offset for e in plan.files] for plan in plans]


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
    assert merged(run([10] * 40), bytes_max=15_000) == [[10 * i for i in range(15)]], "too few, but a full file"
    assert merged(run([1] * 40), bytes_max=0) == []


def test_large_files_are_spared_and_end_a_run():
    files = run([1] * 20 + [1_000] + [1] * 2 + [1_000] * 40 + [1] * 3)
    plans = plan_merges(files, 1 << 40, 32 * MIB, files_min=16, spared_bytes=100_000)
    assert [[e.base_offset for e in plan.files] for plan in plans] == [list(range(20)), [1_020, 1_021]]


def test_deltas_of_a_merged_file_fit_into_32_bits():
    files = run([1 << 28] * 17, bytes_each=10)
    assert merged(files) == [], "sixteen of them would span 2^32 offsets"
    assert merged([*files, *run([1], base=1 << 40, segment=1 << 40)]) == [[i << 28 for i in range(8)]]


@pytest.mark.parametrize(
    ("appended", "records_each", "files_at_most", "rewritten_at_most"),
    [
        pytest.param(20_000, 1, 100, 5.0, id="tiny files"),
        pytest.param(1_000, 10_000, 100, 1.0, id="files of 1 MB, as a burst of large appends writes"),
    ],
)
def test_few_files_stay_and_a_byte_is_rewritten_a_few_times(appended, records_each, files_at_most, rewritten_at_most):
    files: list[FileEntry] = []
    rewritten = most = 0
    for base in range(0, appended * records_each, records_each):
        files += run([records_each], base=base)
        while len(files) % 32 == 0 and (plans := plan_merges(files, base + records_each, 32 * MIB)):
            parts = plans[0].files
            at = files.index(parts[0])
            count = sum(e.file.record_count for e in parts)
            rewritten += count
            assert len(parts) <= FILES_MAX
            files[at : at + len(parts)] = run([count], base=parts[0].base_offset)
        most = max(most, len(files))
    assert most <= files_at_most
    assert rewritten / (appended * records_each) <= rewritten_at_most


def taken(own, leader) -> list[tuple[int, int]]:
    """(base offset of the leader's file, how many own files it replaces)."""
    plans = plan_copied_merges(own, leader)
    return [(plan.copied.base_offset, len(plan.files)) for plan in plans if plan.copied]


@pytest.mark.parametrize(
    ("own", "leader", "plan"),
    [
        pytest.param(run([1] * 4), run([1] * 4), [], id="the same files"),
        pytest.param(run([1] * 4), run([4]), [(0, 4)], id="one merge"),
        pytest.param(run([1] * 6), [*run([2]), *run([3], base=2), *run([1], base=5)], [(0, 2), (2, 3)], id="two"),
        pytest.param(run([2, 2, 1, 1]), run([6]), [(0, 4)], id="a merge of merges, the first of which was missed"),
        pytest.param(run([1] * 3), run([4]), [], id="the own log ends inside"),
        pytest.param(run([3, 2]), run([4]), [], id="an own file reaches beyond its end"),
        pytest.param(run([4]), run([2, 2]), [], id="the own log has it merged already"),
        pytest.param([*run([2]), *run([2], base=2, epoch=1)], run([4]), [], id="two epochs"),
        pytest.param([*run([2]), *run([2], base=2, segment=2)], run([4]), [], id="two segments"),
        pytest.param(run([1] * 4, epoch=1), run([4]), [], id="another epoch"),
        pytest.param(run([1] * 4, base=4), run([4]), [], id="other offsets"),
    ],
)
def test_a_follower_takes_a_merged_file_of_the_very_same_records(own, leader, plan):
    assert taken(own, leader) == plan


def test_a_file_that_lacks_compacted_records_is_not_taken():
    compacted = [FileEntry(DataFile("x", 100, 3, 0, 3, 1, 1), 0, 0, 0)]
    assert taken(run([1] * 4), compacted) == []
