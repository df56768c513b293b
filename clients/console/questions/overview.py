"""The cluster in numbers: its brokers and partitions, what is wrong with them, and groups that are behind.

I/O: the metadata of the cluster; ends of partitions and offsets of groups, which are read side by side.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from stratalog.clients.console.asker import Asker, is_internal
from stratalog.clients.console.over_time.ends import begin_rate
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.questions.groups import GroupRow, groups_behind
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.server.admin.admin import ClusterDescription

GROUPS_MAX = 100
LAGGING_MS = 300
"""Time for which brokers are asked for what groups have committed."""


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A broker with the visible partitions that it leads, holds, and holds without being in sync. -1: none of these
    is known."""

    broker_id: int
    is_running: bool
    is_controller: bool
    rack: str | None
    leads: int
    replicas: int
    out_of_sync: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Numbers of topics and partitions are of those that the asker may see.

    records_per_s  of visible topics without the cluster's own, between readings of this console over the last
                   `rate_s`; None: it has read once only
    behind         the groups that are furthest behind, as many as were asked for; none where they cannot be read
    read_ms        wall time at which the cluster was read
    """

    cluster_id: str
    controller_id: int
    brokers: list[BrokerLoad]
    topics: int
    partitions: int
    offline: int
    under_replicated: int
    records_per_s: float | None
    rate_s: float
    behind: list[GroupRow]
    read_ms: int


def overview(asker: Asker, groups: int) -> Overview:
    """The cluster in numbers. Brokers are shown to those who may describe the cluster."""
    about = asker.cluster.admin.describe_cluster()
    asker.cluster.view.refresh(max_age_ms=1)
    with ThreadPoolExecutor(1, thread_name_prefix="groups-behind") as beside:
        behind = beside.submit(groups_behind, asker, min(groups, GROUPS_MAX), LAGGING_MS) if groups > 0 else None
        found = _counted(asker, about)
    return found if behind is None else replace(found, behind=behind.result())


def _counted(asker: Asker, about: ClusterDescription) -> Overview:
    """Without groups."""
    newest_rate = begin_rate(asker)
    image = asker.cluster.view.image
    topics = set(asker.visible(ResourceType.TOPIC, image.topic_ids))
    states = [state for named, state in image.partitions.items() if named.topic in topics]
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    behind: dict[int, int] = {}
    for state in states:
        leads[state.leader] = leads.get(state.leader, 0) + 1
        for each in state.replicas:
            holds[each] = holds.get(each, 0) + 1
            if each not in state.isr:
                behind[each] = behind.get(each, 0) + 1
    brokers: list[BrokerLoad] = []
    if asker.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        for broker in about.brokers:
            number = broker.broker_id
            brokers.append(
                BrokerLoad(
                    number,
                    not broker.fenced,
                    number == about.controller_id,
                    broker.rack,
                    leads.get(number, 0),
                    holds.get(number, 0),
                    behind.get(number, 0),
                )
            )
    rate = newest_rate()
    return Overview(
        about.cluster_id,
        about.controller_id,
        brokers,
        len(topics),
        len(states),
        sum(state.leader == NO_LEADER for state in states),
        sum(len(state.isr) < len(state.replicas) for state in states),
        None if rate is None else rate.total({name for name in topics if not is_internal(name)}),
        0.0 if rate is None else rate.seconds,
        [],
        asker.now_ms,
    )


QUESTIONS = (
    Question(
        "overview",
        "The cluster in numbers: brokers, partitions, what is offline, and groups that are furthest behind.",
        overview,
        {"groups": Parameter(int, f"how many groups to show, at most {GROUPS_MAX}", 0)},
    ),
)
