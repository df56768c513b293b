"""The largest lag of a follower, from the replicas' tables alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from stratalog.clients.spark.progress.replica_lag import ReplicaLag
from tests.clients.still_cluster import StillCluster


def test_the_lag_is_what_the_last_follower_lacks(tmp_path: Path) -> None:
    cluster = StillCluster(tmp_path)
    t0, _ = cluster.create_topic("t", 2)
    lag = ReplicaLag(cluster.view())
    assert lag.records_max(["t", "unknown"]) == 0, "no follower can be read"
    assert lag.records_max([]) is None
    follower = cluster.log(t0, 2)
    follower.exists_or_create("id-of-t")
    follower.start_epoch(0, as_leader=False)
    cluster.commit(t0, list("abc"))
    assert lag.records_max(["t"]) == 3
    follower.copy_from(cluster.log(t0, 1), 0, 1 << 20)
    assert lag.records_max(["t"]) == 0
    cluster.commit(t0, list("de"))
    assert lag.records_max(["t"]) == 2
    shutil.rmtree(cluster.roots[1])
    assert ReplicaLag(cluster.view()).records_max(["t"]) is None
