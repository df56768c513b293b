"""A running cluster in a notebook: a table of its brokers."""

from __future__ import annotations

from pathlib import Path

from stratalog import Cluster
from tests.replication.test_html_table import Texts


def test_a_cluster_shows_which_brokers_run(cluster_root: Path) -> None:
    with Cluster.start(cluster_root, brokers=2, fetcher="thread", progress=lambda _: None) as cluster:
        assert repr(cluster) == f"<Cluster at {cluster_root}: 2 of 2 brokers run>"
        cluster.kill(2)
        found = Texts(cluster._repr_html_())
    assert found.rows == [
        ["broker", "state", "root", "listeners"],
        ["1", "running", f"{cluster_root}/broker-1", "–"],
        ["2", "stopped", f"{cluster_root}/broker-2", "–"],
    ]
    assert f"metadata root: {cluster_root}/metadata" in found.outside
