"""The cluster for foreign clients: both forms serve, and a killed broker comes back at its port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.foreign.served import Form, Served

pytestmark = pytest.mark.slow


def test_three_broker_processes_and_one_killed(tmp_path: Path) -> None:
    with Served(Form.BROKERS, keep=tmp_path) as served:
        addresses = served.bootstrap.split(",")
        assert len(set(addresses)) == 3
        served.kill(2)
        assert served.brokers_seen_by(2) == 0
        served.await_ready(brokers=2)
        served.restart(2)
        assert served.bootstrap.split(",") == addresses
        assert served.stop() == [0, 0, 0]
    assert not served.folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_one_process_killed_and_its_logs_kept_when_a_test_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a test fails"), Served(Form.CLUSTER, keep=tmp_path) as served:
        restart_all_and_fail(served)
    assert (tmp_path / "cluster" / "cluster.out").read_text().count("Running.") == 2
    assert list(tmp_path.rglob("*.log"))


def restart_all_and_fail(served: Served) -> None:
    served.kill(3)
    assert served.brokers_seen_by(1) == 0
    served.restart(3)
    raise AssertionError("a test fails")
