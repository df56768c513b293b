"""The checks for a store pass on a good one, and one that creates twice fails them by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.s3_double import BUCKET, ConditionalPut, S3Double
from tests.stores.servers import SERVERS, StoreServer
from tests.stores.try_store import CHECKS, try_store


def test_a_local_disk_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    shown: list[str] = []
    assert try_store(str(tmp_path), shown.append), shown
    assert [line.partition(":")[0] for line in shown] == list(CHECKS)
    assert list(tmp_path.iterdir()) == []


def test_an_s3_server_passes_and_is_left_as_it_was(s3: S3Double) -> None:
    shown: list[str] = []
    assert try_store(f"s3://{BUCKET}", shown.append), shown
    assert s3.objects == {}


def test_a_server_that_creates_twice_fails(s3: S3Double) -> None:
    s3.conditional_put = ConditionalPut.IGNORED
    shown: list[str] = []
    assert not try_store(f"s3://{BUCKET}", shown.append)
    (line,) = shown
    assert line.startswith(f"probe: FAILED: s3://{BUCKET}/try-")


@pytest.mark.parametrize("server", SERVERS)
def test_a_real_server_passes(server: str, request: pytest.FixtureRequest) -> None:
    running: StoreServer = request.getfixturevalue(server)
    shown: list[str] = []
    assert try_store(running.new_root(), shown.append), shown
