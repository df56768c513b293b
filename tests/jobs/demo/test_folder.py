"""The demo's folder is emptied only when a demo made it, and is one demo's at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.demo.__main__ import fresh_folder, main
from stratalog.jobs.demo.chart import Timeline, draw_chart, hits_by_class
from stratalog.jobs.demo.log import count_hits, hit_of, read_lines
from stratalog.jobs.demo.verdict import Ack


def test_a_second_demo_starts_fresh(tmp_path: Path) -> None:
    for _ in range(2):
        with fresh_folder(tmp_path / "demo"):
            assert sorted(child.name for child in (tmp_path / "demo").iterdir()) == [".stratalog-demo", "logs"]
            (tmp_path / "demo" / "broker-1").mkdir()
            (tmp_path / "demo" / "demo.png").touch()


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").touch()
    assert main(["--path", str(tmp_path)]) == 1
    assert "was not made by the demo" in capsys.readouterr().err
    assert [child.name for child in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_link_in_the_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    with fresh_folder(tmp_path / "demo"):
        (tmp_path / "demo" / "link").symlink_to(tmp_path / "precious")
    with fresh_folder(tmp_path / "demo"):
        assert (tmp_path / "precious" / "file").exists()


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with fresh_folder(tmp_path), pytest.raises(UsageError, match="another demo runs there"), fresh_folder(tmp_path):
        pass


def test_a_path_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--path", str(tmp_path / "file")]) == 1
    assert "cannot be used" in capsys.readouterr().err


def test_the_chart_is_a_picture_of_all_hits_with_and_without_a_failover(tmp_path: Path) -> None:
    lines = read_lines()
    hits = count_hits(lines)
    assert sum(counts.total() for counts in hits_by_class(hits).values()) == len(lines)
    acks = [Ack(0, at, at + 5) for at in range(0, 2_000, 100)]
    for took_ms in (700.0, None):
        chart = tmp_path / f"{took_ms}.png"
        timeline = Timeline(500, 900, took_ms, 1_800, 2, hit_of(lines[4_000]).minute)
        draw_chart(chart, hits, acks, timeline)
        assert chart.read_bytes().startswith(b"\x89PNG")
