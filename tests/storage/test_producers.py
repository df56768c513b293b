from __future__ import annotations

import pytest

from stratalog.storage.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError, UnknownProducerIdError
from stratalog.storage.producers import Accept, BatchMetadata, Duplicate, ProducerStates, SinkBatch, sequence_after

INT_MAX = (1 << 31) - 1


def states(*batches: tuple[int, int], producer_id: int = 7, epoch: int = 0, offset: int = 0) -> ProducerStates:
    """Producer 7 appended batches (base_sequence, count) from offset 0 on."""
    built = ProducerStates()
    for base_sequence, count in batches:
        last = sequence_after(base_sequence, count - 1)
        metadata = BatchMetadata(base_sequence, last, offset, offset + count - 1, 1_000)
        built = built.with_batch(producer_id, epoch, metadata)
        offset += count
    return built


FIVE = states((0, 2), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1))


@pytest.mark.parametrize(
    ("known", "batch", "answer"),
    [
        pytest.param(ProducerStates(), (-1, -1, -1, 3), Accept(), id="no producer id"),
        pytest.param(ProducerStates(), (7, 0, 0, 3), Accept(), id="a new producer starts at 0"),
        pytest.param(ProducerStates(), (7, 0, 1, 3), UnknownProducerIdError, id="a new producer in the middle"),
        pytest.param(ProducerStates(forgotten_below=8), (7, 0, 1, 3), Accept(), id="one that may be forgotten"),
        pytest.param(
            ProducerStates(forgotten_below=7), (7, 0, 1, 3), UnknownProducerIdError, id="one younger than those"
        ),
        pytest.param(states((0, 3)), (7, 0, 3, 2), Accept(), id="the next sequence"),
        pytest.param(states((0, 3)), (7, 0, 4, 2), OutOfOrderSequenceNumberError, id="a gap"),
        pytest.param(states((0, 3), (3, 2)), (7, 0, 0, 3), Duplicate(0, 2), id="the batch before the last again"),
        pytest.param(FIVE, (7, 0, 2, 1), Duplicate(2, 2), id="the oldest of the last five again"),
        pytest.param(FIVE, (7, 0, 0, 2), OutOfOrderSequenceNumberError, id="older than the last five"),
        pytest.param(states((0, 3)), (7, 0, 0, 2), OutOfOrderSequenceNumberError, id="the same start, another length"),
        pytest.param(states((0, 3), epoch=2), (7, 1, 3, 1), InvalidProducerEpochError, id="an old epoch"),
        pytest.param(states((0, 3)), (7, 1, 0, 1), Accept(), id="a new epoch starts at 0"),
        pytest.param(states((0, 3)), (7, 1, 3, 1), OutOfOrderSequenceNumberError, id="a new epoch goes on counting"),
        pytest.param(states((INT_MAX - 1, 2)), (7, 0, 0, 1), Accept(), id="after 2^31 - 1 comes 0"),
        pytest.param(states((INT_MAX, 3)), (7, 0, 2, 1), Accept(), id="a batch over the end of the sequences"),
        pytest.param(states((INT_MAX, 3)), (7, 0, INT_MAX, 3), Duplicate(0, 2), id="that batch again"),
        pytest.param(states((0, 3)), (7, 0, -1, 1), Accept(), id="a control batch has no sequence"),
        pytest.param(states((0, 3), epoch=2), (7, 1, -1, 1), InvalidProducerEpochError, id="a fenced control batch"),
    ],
)
def test_check(known, batch, answer):
    if isinstance(answer, tuple):
        assert known.check(*batch) == answer
        assert type(known.check(*batch)) is type(answer)
    else:
        with pytest.raises(answer):
            known.check(*batch)


@pytest.mark.parametrize(
    ("batch_id", "answer"),
    [(5, Duplicate(-1, 9)), (3, Duplicate(-1, 9)), (0, Duplicate(-1, 4)), (1, Duplicate(-1, 9)), (6, Accept())],
)
def test_sink_batch_ids_only_grow_and_may_have_gaps(batch_id, answer):
    known = ProducerStates().with_sink("q", SinkBatch(0, 4, 1)).with_sink("q", SinkBatch(5, 9, 1))
    assert known.check_sink("q", batch_id) == answer
    assert known.check_sink("another", batch_id) == Accept()


def test_a_new_epoch_forgets_the_batches_of_the_old_one():
    known = states((0, 3)).with_batch(7, 1, BatchMetadata(0, 0, 3, 3, 1))
    assert [b.base_offset for b in known.producers[7].batches] == [3]


def test_a_control_batch_raises_the_epoch_and_the_next_sequence_is_0():
    known = states((0, 3)).with_batch(7, 1, BatchMetadata(-1, -1, 3, 3, 1))
    assert known.check(7, 1, 0, 1) == Accept()
    with pytest.raises(InvalidProducerEpochError):
        known.check(7, 0, 3, 1)


@pytest.mark.parametrize(
    ("end", "left", "missing"),
    [
        pytest.param(10, [0, 2, 4], frozenset(), id="nothing above"),
        pytest.param(4, [0, 2], frozenset(), id="the last batch goes"),
        pytest.param(3, [0], frozenset(), id="a batch that the cut goes through goes"),
        pytest.param(0, None, frozenset(), id="all known from sequence 0 on: nothing to look up"),
    ],
)
def test_truncated(end, left, missing):
    known, ids, _ = states((0, 2), (2, 2), (4, 2)).truncated(end)
    assert ids == missing
    assert (known.producers.get(7) is None) == (left is None)
    if left is not None:
        assert [b.base_offset for b in known.producers[7].batches] == left


def test_truncation_names_the_producers_that_wrote_more_than_is_kept():
    known, missing, _ = FIVE.truncated(1)
    assert not known.producers
    assert missing == {7}


def test_truncation_takes_sink_batches_back():
    known = ProducerStates().with_sink("q", SinkBatch(1, 4, 1)).with_sink("q", SinkBatch(2, 9, 1))
    assert known.truncated(9)[0].check_sink("q", 2) == Accept()
    assert known.truncated(9)[0].check_sink("q", 1) == Duplicate(-1, 4)
    assert known.truncated(10)[0] is known


def test_producers_expire_before_sinks():
    known = states((0, 1)).with_sink("q", SinkBatch(1, 4, 1_000))
    later = known.expired(1_000 + 86_400_000)
    assert not later.producers
    assert later.sinks
    assert not later.expired(1_000 + 31 * 86_400_000).sinks
    assert known.expired(1_000) is known
    assert (known.forgotten_below, later.forgotten_below) == (0, 8)
    assert known.changes_to(later) is None
    assert ProducerStates.from_json(later.to_json()) == later
    assert later.with_batch(3, 0, BatchMetadata(0, 0, 1, 1, 2_000)).truncated(0).states.forgotten_below == 8


def test_json_is_deterministic_and_complete():
    first = (
        states((0, 2), producer_id=9).with_batch(7, 3, BatchMetadata(0, 0, 5, 5, 2)).with_sink("ü", SinkBatch(1, 4, 1))
    )
    second = ProducerStates(dict(reversed(list(first.producers.items()))), first.sinks)
    assert first.to_json() == second.to_json()
    assert ProducerStates.from_json(first.to_json()) == first
    assert b" " not in first.to_json()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"producers":{"1":[1]},"sinks":{}}'])
def test_from_json_refuses_other_content(data):
    with pytest.raises(ValueError, match=r".*"):
        ProducerStates.from_json(data)
