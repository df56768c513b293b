from __future__ import annotations

import random

import pytest

from stratalog.storage.log.leader_epochs import NO_LOG, UNDEFINED, LeaderEpochCache


def cache(*pairs: tuple[int, int]) -> LeaderEpochCache:
    built = LeaderEpochCache()
    for epoch, start in pairs:
        built = built.assign(epoch, start)
    return built


@pytest.mark.parametrize(
    ("before", "entry", "after"),
    [
        pytest.param((), (0, 0), ((0, 0),), id="the first epoch begins at the log end"),
        pytest.param(((0, 0),), (2, 10), ((0, 0), (2, 10)), id="a later epoch follows"),
        pytest.param(((0, 0), (2, 10)), (2, 15), ((0, 0), (2, 10)), id="the same epoch keeps its start"),
        pytest.param(((0, 0), (2, 10)), (3, 10), ((0, 0), (3, 10)), id="an epoch without records is replaced"),
        pytest.param(((0, 0), (2, 10)), (3, 5), ((0, 0), (3, 5)), id="a lower start drops what begins above"),
        pytest.param(((0, 0), (2, 10)), (1, 12), ((0, 0), (1, 12)), id="a lower epoch drops the higher ones"),
        pytest.param(((0, 0), (2, 10)), (2, 8), ((0, 0), (2, 8)), id="the same epoch may start lower"),
    ],
)
def test_assign_keeps_epochs_and_offsets_ascending(before, entry, after):
    assert cache(*before).assign(*entry).entries == after


def test_assign_refuses_negative_numbers():
    with pytest.raises(ValueError, match="epoch -1"):
        LeaderEpochCache().assign(-1, 0)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 5)), (1, (1, 7)), (2, (2, 10)), (3, (2, 10)), (4, (4, 15)), (5, (-1, -1))],
)
def test_end_offset_for_answers_as_kafka(epoch, answer):
    epochs = cache((1, 5), (2, 7), (4, 10))
    assert epochs.end_offset_for(epoch, 15) == answer


def test_an_empty_cache_knows_no_end_offset():
    assert LeaderEpochCache().end_offset_for(0, 10) == UNDEFINED


@pytest.mark.parametrize(("epoch", "end"), [(-1, 5), (0, 5), (1, 7), (2, 10), (3, 10), (4, None), (5, None)])
def test_the_end_after_an_epoch_is_where_the_next_one_began(epoch: int, end: int | None) -> None:
    assert cache((1, 5), (2, 7), (4, 10)).end_after(epoch) == end


@pytest.mark.parametrize(
    ("before", "after", "keeps"),
    [
        pytest.param((), ((0, 0),), True, id="none had ended"),
        pytest.param(((0, 0), (2, 10)), ((0, 0), (2, 10)), True, id="the same"),
        pytest.param(((0, 0), (2, 10)), ((0, 0), (2, 10), (3, 15)), True, id="a later epoch follows"),
        pytest.param(((0, 0), (2, 10)), ((0, 0), (3, 10)), True, id="an epoch without records is replaced"),
        pytest.param(((0, 0), (2, 10)), ((0, 0), (3, 5)), True, id="a later epoch began lower"),
        pytest.param(((0, 0), (2, 10)), ((0, 0),), False, id="the last epoch is cut off"),
        pytest.param(((0, 0), (2, 10)), ((0, 0), (3, 15)), False, id="a later epoch began higher"),
        pytest.param(((0, 0), (2, 10)), (), False, id="nothing is left"),
    ],
)
def test_whether_an_epoch_may_end_later_than_before(
    before: tuple[tuple[int, int], ...], after: tuple[tuple[int, int], ...], keeps: bool
) -> None:
    assert cache(*after).keeps_ends_of(cache(*before)) == keeps


@pytest.mark.parametrize(("offset", "epoch"), [(4, -1), (5, 1), (9, 1), (10, 3), (99, 3)])
def test_epoch_at(offset, epoch):
    assert cache((1, 5), (3, 10)).epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("end", "left"),
    [(25, ((0, 0), (2, 10), (4, 20))), (20, ((0, 0), (2, 10))), (10, ((0, 0),)), (5, ((0, 0),)), (0, ())],
)
def test_truncate_from_end_drops_epochs_that_begin_at_or_above_the_end(end, left):
    assert cache((0, 0), (2, 10), (4, 20)).truncate_from_end(end).entries == left


def test_of_a_log_without_records_the_epoch_in_force_stays() -> None:
    emptied = cache((0, 0), (2, 10)).truncate_from_start(15)
    assert emptied.truncate_from_end(15).entries == ((2, 15),)
    assert emptied.truncate_from_end(14).entries == ()
    assert cache((2, 15), (3, 20)).truncate_from_end(15).entries == ((2, 15),)
    assert cache((3, 0)).truncate_from_end(0).entries == ()


@pytest.mark.parametrize(
    ("entries", "end", "expected"),
    [
        (((0, 0), (2, 10)), 15, (2, 15)),
        (((0, 0), (2, 10)), 10, (2, 10)),
        (((2, 15),), 15, (2, 15)),
        (((3, 0),), 0, (3, 0)),
        ((), 0, NO_LOG),
    ],
)
def test_the_end_of_a_log(entries: tuple[tuple[int, int], ...], end: int, expected: tuple[int, int]) -> None:
    assert cache(*entries).log_end(end) == expected


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, ((0, 0), (2, 10), (4, 20))),
        (5, ((0, 5), (2, 10), (4, 20))),
        (10, ((2, 10), (4, 20))),
        (15, ((2, 15), (4, 20))),
        (30, ((4, 30),)),
    ],
)
def test_truncate_from_start_moves_the_epoch_in_force(start, left):
    assert cache((0, 0), (2, 10), (4, 20)).truncate_from_start(start).entries == left


@pytest.mark.parametrize(
    ("own", "own_end", "leader", "leader_end", "leader_start", "agreed"),
    [
        pytest.param(((0, 0),), 10, ((0, 0),), 10, 0, 10, id="equal logs"),
        pytest.param(((0, 0),), 8, ((0, 0),), 10, 0, 8, id="the follower lags"),
        pytest.param(((0, 0),), 12, ((0, 0), (1, 10)), 10, 0, 10, id="unreplicated tail of the old leader"),
        pytest.param(((0, 0), (1, 1)), 2, ((0, 0), (2, 1)), 2, 0, 1, id="KIP-279: two leaders wrote offset 1"),
        pytest.param(((1, 0), (2, 20)), 30, ((1, 0), (3, 15)), 25, 0, 15, id="leader left the common epoch earlier"),
        pytest.param(((1, 0), (2, 10)), 30, ((1, 0), (3, 20)), 25, 0, 10, id="follower left the common epoch earlier"),
        pytest.param(
            ((1, 0), (2, 10), (4, 20)), 30, ((1, 0), (2, 10), (3, 15), (5, 25)), 40, 0, 15, id="two steps of KIP-279"
        ),
        pytest.param(((2, 0),), 10, ((1, 0), (3, 5)), 8, 0, 0, id="no epoch in common"),
        pytest.param(((1, 0), (2, 10)), 20, ((5, 25),), 40, 25, 20, id="below the leader's log start nothing is known"),
        pytest.param(((1, 0), (2, 10)), 30, ((5, 25),), 40, 25, 25, id="offsets above the leader's start are cut"),
        pytest.param(((3, 0),), 30, ((3, 25), (4, 28)), 40, 25, 28, id="the leader's first epoch is cut at its start"),
        pytest.param(((1, 3),), 7, ((0, 0), (3, 3)), 5, 0, 3, id="the follower's log starts where its epoch began"),
        pytest.param(((1, 3), (2, 6)), 9, ((0, 0), (3, 4)), 8, 0, 3, id="and its leader continued a little further"),
        pytest.param((), 0, ((0, 0),), 10, 0, 0, id="an empty follower"),
        pytest.param((), 22, ((0, 0), (3, 22)), 30, 0, 22, id="a follower whose records were all deleted stays"),
        pytest.param((), 25, ((0, 0),), 22, 0, 22, id="but not above its leader's log"),
        pytest.param(((6, 12),), 12, ((2, 7), (7, 10)), 15, 7, 12, id="also one that knows the epoch in force there"),
        pytest.param(((1, 0), (5, 10)), 10, ((1, 0), (6, 10)), 12, 0, 10, id="an epoch that wrote nothing"),
    ],
)
def test_agreed_end(own, own_end, leader, leader_end, leader_start, agreed):
    assert LeaderEpochCache.agreed_end(cache(*own), own_end, cache(*leader), leader_end, leader_start) == agreed


def kafka_dialogue(own: LeaderEpochCache, own_end: int, leader: LeaderEpochCache, leader_end: int) -> int:
    """The follower's truncation as in Kafka's fetcher, request by request."""
    while own.entries:
        epoch, end = leader.end_offset_for(own.latest_epoch, leader_end)
        own_epoch, own_epoch_end = own.end_offset_for(epoch, own_end)
        if own_epoch == epoch:
            return min(own_epoch_end, end, own_end)
        own_end = min(own_epoch_end, own_end)
        own = own.truncate_from_end(own_end)
    return own_end


def logs_of_one_partition(rng: random.Random) -> tuple[list[int], list[int]]:
    """Two logs, as the epoch of each record, of leaders that copied a common prefix."""
    logs: list[list[int]] = [[], []]
    for epoch in range(1, rng.randint(2, 7)):
        writer = rng.randrange(2)
        logs[writer] += [epoch] * rng.randint(1, 4)
        if rng.random() < 0.5:
            other = logs[1 - writer]
            agreed = next((i for i, (a, b) in enumerate(zip(*logs, strict=False)) if a != b), len(other))
            agreed = min(agreed, len(logs[writer]))
            logs[1 - writer] = logs[writer][: rng.randint(agreed, len(logs[writer]))]
    return logs[0], logs[1]


@pytest.mark.parametrize("seed", range(300))
def test_agreed_end_is_where_kafkas_dialogue_ends_and_the_logs_part(seed):
    first, second = logs_of_one_partition(random.Random(seed))
    latest = max([*first, *second]) + 1
    caches = [cache(*((e, log.index(e)) for e in sorted(set(log)))) for log in (first, second)]
    leader = caches[1].assign(latest, len(second))
    agreed = LeaderEpochCache.agreed_end(caches[0], len(first), leader, len(second))
    assert first[:agreed] == second[:agreed]
    assert agreed == kafka_dialogue(caches[0], len(first), leader, len(second))
    for log_start in range(agreed + 1):  # below it all is committed, so the leader has it
        own = caches[0].truncate_from_start(log_start)
        assert LeaderEpochCache.agreed_end(own, len(first), leader, len(second)) == agreed
    assert first[agreed : agreed + 1] != second[agreed : agreed + 1] or agreed == len(first) == len(second)
