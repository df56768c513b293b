"""The tables under contract, by the store that they are on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.table_labs import DeltaLab, Lab, MemoryLab, StoreLab, Table
from tests.stores.servers import SERVERS, StoreServer


@pytest.fixture(params=["memory", "delta", *SERVERS])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    if request.param == "memory":
        return MemoryLab()
    if request.param == "delta":
        return DeltaLab(tmp_path)
    server: StoreServer = request.getfixturevalue(request.param)
    return StoreLab.remote(server.new_root())


@pytest.fixture
def table(lab: Lab) -> Table:
    made = lab.open()
    assert made.create({"stratalog.topic-id": "t1"}, 1_000, "c0")
    return made
