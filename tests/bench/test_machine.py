"""What the bench finds out of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench import machine


@pytest.mark.parametrize(
    ("task", "expected"), [("<none>\n", True), ("171\n", False), (None, False)], ids=["none", "journal", "not ext4"]
)
def test_a_file_system_without_a_journal_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str | None, expected: bool
) -> None:
    device = tmp_path.stat().st_dev
    blocks, ext4 = tmp_path / "dev" / "block", tmp_path / "fs" / "ext4" / "vdz"
    blocks.mkdir(parents=True)
    ext4.mkdir(parents=True)
    (blocks / f"{os.major(device)}:{os.minor(device)}").symlink_to("../../devices/virtual/block/vdz")
    if task is not None:
        (ext4 / "journal_task").write_text(task, encoding="utf-8")
    monkeypatch.setattr(machine, "SYSTEM", tmp_path)
    assert machine.lacks_journal(tmp_path) is expected
