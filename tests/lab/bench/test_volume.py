"""The file system of a bench's data is read from the system."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.lab.bench import volume


def test_the_file_system_below_a_folder_is_named(tmp_path: Path) -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    assert volume.kind_of(tmp_path) in {mount[2] for mount in mounts}
    assert volume.described(tmp_path).startswith(volume.kind_of(tmp_path))


def test_the_folder_of_a_run_is_its_temporary_folder_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # nothing is mounted
    monkeypatch.setattr(volume, "SHARED_MEMORY", tmp_path / "absent")
    with volume.data_folder() as folder:
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(folder)
        (folder / "data").write_text("x")
    assert os.environ["TMPDIR"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
