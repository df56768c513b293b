"""An S3 server with faults for every test here; the real servers are in `servers.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.s3_double import S3Double, s3_double


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Double]:
    """A server that `open_store("s3://bucket/…")` finds, since the environment names it."""
    with s3_double() as double:
        for name, value in double.environment().items():
            monkeypatch.setenv(name, value)
        yield double
