"""What every test may ask for: a Spark session made on first use, and roots on a fresh disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FETCH_SLOTS = 8
"""Slots for three brokers with two overlapping fetch sessions each, and two to spare."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that takes the Spark session is marked `spark`."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the run. Its JVM's logs are in the run's temporary folder."""
    from replication.spark_session import stratalog_session

    session = stratalog_session("stratalog-tests", fetch_slots=FETCH_SLOTS, log_dir=tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def cluster_root(tmp_path: Path) -> Path:
    """A folder for `Cluster.start`, not there yet."""
    return tmp_path / "cluster"


@pytest.fixture
def broker_root(tmp_path: Path) -> Callable[[int], Path]:
    """`broker_root(2)`: the empty folder of broker 2, the same one at each call."""

    def root(broker_id: int) -> Path:
        folder = tmp_path / "cluster" / f"broker-{broker_id}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    return root
