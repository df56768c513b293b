"""The checker finds each kind of bad history that is planted, and nothing in a good one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.history import ACK, FAIL, HIGH_WATERMARK, POLL, SEND, STORED, Event, History, check, read_events

GOOD = (
    Event(1, "p1", SEND, value="a:1"),
    Event(2, "p1", SEND, value="a:2"),
    Event(3, "p2", SEND, value="b:1"),
    Event(4, "p1", ACK, 0, 0, 3, "a:1"),
    Event(5, "watch", HIGH_WATERMARK, 0, 1, 3),
    Event(6, "c1", POLL, 0, 0, 3, "a:1"),
    Event(7, "p1", FAIL, 0, value="a:2"),
    Event(8, "p2", ACK, 1, 0, 1, "b:1"),
    Event(9, "watch", HIGH_WATERMARK, 0, 2, 4),
    Event(9, "watch", HIGH_WATERMARK, 1, 1, 1),
    Event(10, "c1", POLL, 0, 1, 3, "a:2"),
    Event(11, "c2", POLL, 1, 0, 1, "b:1"),
    *(
        Event(20, replica, STORED, partition, offset, epoch, value)
        for replica in ("broker-1", "broker-2")
        for partition, offset, epoch, value in ((0, 0, 3, "a:1"), (0, 1, 3, "a:2"), (1, 0, 1, "b:1"))
    ),
)


def without(kind: str, value: str, client: str | None = None) -> tuple[Event, ...]:
    return tuple(e for e in GOOD if (e.kind, e.value) != (kind, value) or client not in (None, e.client))


PLANTED: list[tuple[str, tuple[Event, ...], set[str]]] = [
    ("a good history", GOOD, set()),
    ("an acknowledged record that no replica has", without(STORED, "b:1"), {"lost"}),
    ("an acknowledged record that one replica lacks", without(STORED, "b:1", "broker-2"), {"lost"}),
    ("a value at two offsets", (*GOOD, Event(30, "log", POLL, 0, 2, 3, "a:2")), {"duplicated"}),
    ("a value in two partitions", (*GOOD, Event(30, "log", POLL, 1, 1, 3, "b:1")), {"duplicated"}),
    (
        "a consumer that saw another value than the log has",
        (*without(POLL, "a:2"), Event(0, "p3", SEND, value="c:1"), Event(10, "c1", POLL, 0, 1, 3, "c:1")),
        {"two values"},
    ),
    (
        "a replica with another value at an offset",
        (*GOOD, Event(0, "p3", SEND, value="c:1"), Event(21, "broker-3", STORED, 0, 1, 3, "c:1")),
        {"two values", "lost"},
    ),
    ("a value that nobody sent", without(SEND, "b:1"), {"invented"}),
    ("an offset polled twice", (*GOOD, Event(12, "c1", POLL, 0, 1, 3, "a:2")), {"poll not monotonic"}),
    ("an earlier offset polled later", (*GOOD, Event(12, "c1", POLL, 0, 0, 3, "a:1")), {"poll not monotonic"}),
    (
        "an offset left out by a poll",
        (*GOOD, Event(0, "p1", SEND, value="a:9"), Event(12, "c1", POLL, 0, 3, 3, "a:9")),
        {"poll not monotonic"},
    ),
    (
        "a high watermark that goes back",
        (*GOOD, Event(12, "watch", HIGH_WATERMARK, 0, 1, 5)),
        {"high watermark went back"},
    ),
    (
        "records of one key in the wrong order",
        (*GOOD, Event(0, "p1", SEND, value="a:0"), Event(30, "log", POLL, 0, 2, 3, "a:0")),
        {"out of order"},
    ),
    (
        "one key in two partitions",
        (*GOOD, Event(0, "p1", SEND, value="a:3"), Event(30, "log", POLL, 1, 1, 3, "a:3")),
        {"out of order"},
    ),
    (
        "an acknowledgement above the high watermark",
        (
            *(e for e in GOOD if (e.kind, e.partition, e.offset) != (HIGH_WATERMARK, 1, 1)),
            Event(9, "watch", HIGH_WATERMARK, 1, 0, 1),
        ),
        {"beyond high watermark"},
    ),
]


@pytest.mark.parametrize(("events", "expected"), [row[1:] for row in PLANTED], ids=[row[0] for row in PLANTED])
def test_a_planted_fault_is_found_and_nothing_else(events: tuple[Event, ...], expected: set[str]) -> None:
    assert {finding.rule for finding in check(events)} == expected


def test_a_history_survives_its_file_and_loses_only_a_torn_line(tmp_path: Path) -> None:
    history = History(tmp_path / "run.jsonl")
    history.add("p1", SEND, value="a:1")
    history.add("p1", ACK, 0, 7, 2, "a:1")
    history.close()
    with (tmp_path / "run.jsonl").open("a") as torn:
        torn.write('[12,"p1","se')
    found = read_events(tmp_path / "run.jsonl")
    assert [(e.client, e.kind, e.partition, e.offset, e.epoch, e.value) for e in found] == [
        ("p1", SEND, -1, -1, -1, "a:1"),
        ("p1", ACK, 0, 7, 2, "a:1"),
    ]
    assert history.counts == {SEND: 1, ACK: 1}
    assert read_events(tmp_path / "absent.jsonl") == []
