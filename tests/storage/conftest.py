"""Replicas in memory and as Delta tables: what holds for logs holds on both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.logs import Replicas


@pytest.fixture(params=["memory", "delta"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Replicas:
    return Replicas.new(tmp_path if request.param == "delta" else None)
