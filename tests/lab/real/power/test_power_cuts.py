"""Disks that lose power under a store, and under brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.storage.objects.local import LocalStore
from tests.lab.real.power.disks import Disks, why_not
from tests.lab.real.power.judge import Ack, Judge, Loss, Poll, Row
from tests.lab.real.power.run import Run
from tests.lab.real.power.volatile_disk import POSIX, Rules

PLACE = ("t", 0)
NO_WRITEBACK = Rules(POSIX, writeback_ms=0)


@pytest.fixture
def disks() -> Iterator[Disks]:
    if reason := why_not():
        pytest.skip(reason)
    with Disks(NO_WRITEBACK) as made:
        yield made


@pytest.mark.slow
def test_a_local_store_works_on_such_a_disk_and_keeps_what_it_synced(disks: Disks, tmp_path: Path) -> None:
    place = disks.mount("a", tmp_path / "disk")
    for seed in range(12):
        store = LocalStore(str(place / "root"), create=True)
        assert store._unnamed.are_there
        assert [store.create(f"log/{seed}.json", value) for value in (b"first", b"second")] == [True, False]
        for value in (b"one", b"two"):
            store.put("object", value * 5_000)
            store.put_register("register", value)
        store.sync([f"log/{seed}.json"])
        disks.cut("a", seed)
        with pytest.raises(OSError, match="not connected"):
            list(place.iterdir())
        disks.restore("a")
        assert store.get(f"log/{seed}.json") == b"first"
        if seed == 5:
            store.put("object", b"whole" * 5_000)
            store.sync_all()
            disks.cut("a", 99)
            disks.restore("a")
            assert store.get("object") == b"whole" * 5_000, "syncfs reaches the disk"


@pytest.mark.slow
def test_a_file_that_is_open_over_a_cut_does_not_keep_the_old_file_system(disks: Disks, tmp_path: Path) -> None:
    place = disks.mount("a", tmp_path / "disk")
    held = []
    for seed in range(10):
        (place / "x").write_bytes(b"one")
        held.append(os.open(place / "x", os.O_RDONLY))
        disks.cut("a", seed)
        disks.restore("a")
        (place / "y").write_bytes(b"two")
        assert (place / "y").read_bytes() == b"two"
    for descriptor in held:
        os.close(descriptor)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_six_cuts_lose_nothing_that_was_promised(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    result = Run(tmp_path, 3, Rules(), (1, 1, 2), reads_by_spark=False).run(6)
    assert result.findings == []
    assert result.acknowledged > 100
    assert sum(result.cuts.values()) == 6


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("forgets", ["files", "directories"])
def test_a_product_that_forgets_syncs_is_found(tmp_path: Path, forgets: str) -> None:
    if reason := why_not():
        pytest.skip(reason)
    result = Run(tmp_path, 3, NO_WRITEBACK, (0, 0, 1), reads_by_spark=False, forgets=forgets).run(20)
    assert result.findings != []


def rows(*values: str, epoch: int = 0) -> list[Row]:
    return [Row(offset, epoch, value) for offset, value in enumerate(values)]


def judged(*replicas: list[Row], acks: tuple[Ack, ...] = (), loss: Loss | None = None) -> list[str]:
    judge = Judge()
    judge.acknowledged(acks)
    if loss is not None:
        judge.lost(PLACE, loss)
    judge.check(PLACE, {f"broker-{i}": replica for i, replica in enumerate(replicas, 1)})
    return [finding.rule for finding in judge.findings]


def ack(offset: int, value: str, at_s: float = 1.0) -> Ack:
    return Ack(PLACE, offset, value, at_s, at_s)


def test_the_judge_finds_each_kind_of_loss() -> None:
    whole = rows("a", "b", "c")
    assert judged(whole, whole, acks=(ack(2, "c"),)) == []
    assert judged(whole, rows("a", "b"), acks=(ack(2, "c"),)) == ["lost-write", "replicas-differ"]
    assert judged(rows("a", "x", "c"), acks=(ack(1, "b"),)) == ["lost-write"]
    assert judged(rows("a", "a")) == ["duplicate"]
    assert judged([Row(0, 0, "a"), Row(2, 0, "b")]) == ["hole"]
    assert judged(whole, rows("a", "x", "c")) == ["epoch-given-twice"]
    assert judged([Row(0, 1, "a"), Row(1, 0, "b")]) == ["epoch-goes-back"]


def test_a_cut_of_the_whole_isr_may_take_the_tail_that_was_acknowledged_before_and_nothing_else() -> None:
    left = [Row(0, 0, "a"), Row(1, 3, "x")]
    loss = Loss(1, until_s=5.0, kept_end=1)
    assert judged(left, left, acks=(ack(0, "a"), ack(1, "b")), loss=loss) == []
    assert judged(left, left, acks=(ack(1, "b"),), loss=loss._replace(kept_end=2)) == ["kept-and-lost"]
    assert judged(left, acks=(ack(1, "b", at_s=6.0),), loss=loss) == ["lost-write"]
    assert judged(rows("z"), acks=(ack(0, "a"),), loss=loss) == ["lost-write"]


def test_the_judge_compares_reads_with_acknowledgements() -> None:
    judge = Judge()
    judge.acknowledged([ack(0, "a")])
    judge.polled([Poll(PLACE, 0, 2, "b", 2.0)])
    judge.led(PLACE, 4, 1)
    judge.led(PLACE, 4, 2)
    assert [finding.rule for finding in judge.findings] == ["two-values", "two-leaders"]
