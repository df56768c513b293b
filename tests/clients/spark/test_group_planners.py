"""Planner processes of queries in a group, and what the group knows of them when they end, however they end."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.producer.producer import Producer
from stratalog.replication.fast_start.planners import ForkedPlanners
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from tests.clients.spark.planner_process import PlannerError, PlannerProcess
from tests.waiting import wait_until

CONFIG = {
    "listeners": "PLAINTEXT://localhost:0",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
}
LEAVES_S_MAX = 10
"""Far below the session timeout of 45 s, after which a member is missed."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster.start(folder, brokers=1, fetcher="thread", config=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The launcher of planners that are forked, as in a session of ours."""
    started = ForkedPlanners.start(tmp_path_factory.mktemp("planners") / "p", {})
    assert started is not None
    yield str(started.launcher)
    started.stop()


class Group:
    """A topic of two partitions with two records in each, and a group of the same name."""

    def __init__(self, cluster: Cluster, name: str, folder: Path) -> None:
        self.cluster, self.name, self._folder = cluster, name, folder
        self._view = ClusterView(cluster.root)
        self._admin = GroupAdmin(LiveGroups(cluster, self._view.clock, 10_000), self._view)
        self.planners: list[PlannerProcess] = []
        Admin(cluster).create_topic(name, 2, 1)
        self.send(2)

    def send(self, count: int) -> None:
        with Producer(self.cluster) as producer:
            for number in range(2 * count):
                producer.send(self.name, b"x", partition=number % 2)

    def planner(self, python: str | None = None, **options: object) -> PlannerProcess:
        given = {
            "stratalog.root": self.cluster.root,
            "subscribe": self.name,
            "kafka.group.id": self.name,
            "stratalog.auto.offset.reset": "earliest",
            **options,
        }
        chosen = {} if python is None else {"python": python}
        self.planners.append(PlannerProcess(self._folder / str(len(self.planners)), given, **chosen))
        return self.planners[-1]

    def member(self, python: str | None = None, **options: object) -> PlannerProcess:
        """A planner that has both partitions."""
        made = self.planner(python, **{"stratalog.group.mode": "share", **options})
        end = made.latest_offset(made.initial_offset())
        assert end[self.name] == {"0": 2, "1": 2}
        assert len(self.members()) == 1
        return made

    def members(self) -> list[str]:
        return [member.member_id for member in self._admin.describe_group(self.name).members]

    def has_left(self) -> None:
        wait_until(lambda: self.members() == [], "the planner left its group", timeout_s=LEAVES_S_MAX)

    def committed(self) -> dict[int, int]:
        return {tp.partition: each.offset for tp, each in self._admin.committed(self.name).items()}


@pytest.fixture
def group(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    made = Group(cluster, "".join(c if c.isalnum() else "-" for c in request.node.name)[-60:], tmp_path)
    yield made
    for planner in made.planners:
        planner.close()


def _terminated_twice(planner: PlannerProcess) -> None:
    planner.process.terminate()
    planner.process.terminate()


def _hung_up_then_terminated(planner: PlannerProcess) -> None:
    planner.hang_up()
    time.sleep(0.01)  # not waited for: the signal shall meet the planner while it leaves
    planner.process.terminate()


ENDS: dict[str, Callable[[PlannerProcess], None]] = {
    "terminated": lambda planner: planner.process.terminate(),
    "terminated twice": _terminated_twice,
    "hung up on": PlannerProcess.hang_up,
    "ended by Spark": PlannerProcess.end,
    "hung up on, then terminated": _hung_up_then_terminated,
    "interrupted, then terminated": lambda planner: (
        planner.process.send_signal(signal.SIGINT),
        planner.process.terminate(),
    )[0],
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_forked", [False, True], ids=["alone", "forked"])
def test_a_planner_leaves_its_group_however_it_ends(group: Group, forks: str, is_forked: bool, end: str) -> None:
    protocol = "consumer" if is_forked else "classic"
    ENDS[end](group.member(forks if is_forked else None, **{"kafka.group.protocol": protocol}))
    group.has_left()


def test_a_planner_whose_session_has_stopped_ends_and_leaves(group: Group) -> None:
    """Spark asks for offsets for ever then, unless it has a job to run; it deletes its local folders."""
    planner = group.member()
    shutil.rmtree(planner.local)
    with pytest.raises(PlannerError, match=r"its session has stopped.*Stop a query before its session"):
        planner.latest_offset({})
    group.has_left()


@pytest.mark.parametrize("is_forked", [False, True], ids=["alone", "forked"])
def test_what_a_stopped_query_has_stored_is_committed(group: Group, forks: str, is_forked: bool) -> None:
    planner = group.planner(forks if is_forked else None, startingOffsets="group")
    first = planner.latest_offset(planner.initial_offset())
    assert first[group.name] == {"0": 2, "1": 2}
    ends = first
    for count in range(3, 6):  # faster than commits are sent
        group.send(1)
        stored = ends
        while ends[group.name] == stored[group.name]:
            ends = planner.latest_offset(stored)
        assert ends[group.name] == {"0": count, "1": count}
    planner.latest_offset(ends)
    planner.end()
    wait_until(lambda: group.committed() == {0: 5, 1: 5}, "all that was stored is committed", timeout_s=LEAVES_S_MAX)
    again = group.planner(startingOffsets="group")
    assert again.initial_offset()[group.name] == {"0": 5, "1": 5}
