"""Roots that a broker makes on a local disk can be read by its own user alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.storage.objects.local import LocalStore


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_root_that_is_made_is_for_its_user_alone(tmp_path: Path) -> None:
    root = tmp_path / "disk" / "broker-1"
    LocalStore(str(root), create=True).put("t-0/x", b"secret")
    assert mode_of(root) == 0o700
    assert mode_of(root.parent) == 0o755, "what is above it may have other uses"


def test_a_root_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    root.mkdir(0o750)
    LocalStore(str(root), create=True).put("t-0/x", b"1")
    assert mode_of(root) == 0o750
