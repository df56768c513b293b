"""The state change log merger: which lines are wanted, in which order, from which files."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stratalog.jobs.replicas.state_change_log_merger import LineFilter, main, merge
from stratalog.server.process.text_logs import close_text_logs, open_text_logs

ONE = [
    "[2026-11-21 18:00:00,100] INFO [Broker 1] registered with epoch 1\n",
    '[2026-11-21 18:00:01,000] INFO [Broker 1] t-0 became leader: {"leader":1}\n',
    '[2026-11-21 18:00:03,000] INFO [Broker 1] t-1 became follower: {"leader":2}\n',
    "Traceback of something\n",
    "[2026-11-21 18:00:05,000] INFO [Broker 1] stopped replica t-0: its topic was deleted\n",
]
TWO = [
    '[2026-11-21 18:00:01,000] INFO [Broker 2] t-0 became follower: {"leader":1}\n',
    '[2026-11-21 18:00:02,000] INFO [Broker 2] t-11 became leader: {"leader":2}\n',
    "[2026-11-21 18:00:04,000] TRACE Broker 2 state change for partition [t,1] from OfflinePartition\n",
    '[2026-11-21 18:00:06,000] INFO [Broker 2] other-t-0 became leader: {"leader":2}\n',
]


def times(wanted: LineFilter) -> list[str]:
    """Second and broker of each merged line."""
    lines = list(merge([ONE, TWO], wanted))
    return [f"{line[19:20]}/{line.split('roker ')[1][0]}" for line in lines]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (LineFilter(), "0/1 1/1 1/2 2/2 3/1 4/2 5/1 6/2"),
        (LineFilter(topic="t"), "1/1 1/2 2/2 3/1 4/2 5/1"),
        (LineFilter(topic="t", partitions=frozenset({1})), "3/1 4/2"),
        (LineFilter(topic="t", partitions=frozenset({0, 11})), "1/1 1/2 2/2 5/1"),
        (LineFilter(topic="other-t"), "6/2"),
        (LineFilter(topic="other"), ""),
        (LineFilter("2026-11-21 18:00:02,000", "2026-11-21 18:00:04,000"), "2/2 3/1 4/2"),
        (LineFilter("2026-11-21 18:00:02,000", topic="t", partitions=frozenset({0})), "5/1"),
    ],
)
def test_wanted_lines_come_in_order_of_time(wanted: LineFilter, expected: str) -> None:
    assert times(wanted) == expected.split()


def test_no_file_is_read_further_than_it_must_be() -> None:
    def endless(log: list[str]) -> object:
        yield from log
        raise AssertionError("read on")

    merged = merge([endless(ONE), endless(TWO)], LineFilter())  # type: ignore[list-item]
    assert [next(merged)[19:20] for _ in range(3)] == ["0", "1", "1"]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name, lines in (("broker-1", ONE), ("broker-2", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state-change.log").write_text("".join(lines))
    return tmp_path


@pytest.mark.parametrize("by", ["logs", "logs-regex"])
def test_files_are_named_one_by_one_or_by_an_expression(
    logs: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    names = {
        "logs": f"{logs}/broker-1/state-change.log,{logs}/broker-2/state-change.log",
        "logs-regex": f"{logs}/broker-[0-9]/state-change\\.log(\\.[0-9]+)?",
    }
    assert main([f"--{by}", names[by], "--topic", "t", "--partitions", "1,11"]) == 0
    assert [line[19:20] for line in capsys.readouterr().out.splitlines()] == ["2", "3", "4"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], 'Provide arguments to exactly one of the two options "[logs]" or "[logs-regex]"'),
        (["--logs", "a", "--logs-regex", "b"], "exactly one of the two options"),
        (["--logs", "nowhere.log"], "nowhere.log cannot be read"),
        (["--logs-regex", "("], "( is an invalid regex."),
        (["--logs-regex", "nowhere/.*"], "No file below"),
        (["--logs", "a", "--partitions", "1"], 'The option "[topic]" needs to be provided an argument'),
        (["--logs", "a", "--topic", "t", "--partitions", "1,x"], "but received: x"),
        (["--logs", "a", "--topic", "t", "--partitions", "1,2,1"], "contains repeated entries: 1"),
        (["--logs", "a", "--start-time", "yesterday"], "--start-time yesterday is not in the format"),
        (["--logs", "a", "--end-time", "2026-02-30 00:00:00,000"], "is not in the format"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_state_change_logs_do_not_grow_for_ever_and_merge_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest lines of a log that was full many times over, in order."""
    text_logs = open_text_logs(tmp_path, file_bytes_max=1_000)
    for number in range(1_000):
        logging.getLogger("stratalog.state.change").info("[Broker 1] t-0 change %d", number)
    close_text_logs(text_logs)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 11 * 1_000
    assert main(["--logs-regex", f"{tmp_path}/state-change\\.log.*", "--topic", "t"]) == 0
    numbers = [int(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(numbers) > 100
    assert numbers == list(range(1_000 - len(numbers), 1_000))
