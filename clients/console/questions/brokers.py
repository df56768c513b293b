"""Brokers, their configs and disks; partitions that move between them. I/O: metadata, leaders' bounds, replicas."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.questions.topics import ConfigRow, config_rows
from stratalog.clients.wire.wire_admin import WireAdmin
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.storage.errors import BrokerNotAvailableError, StratalogError


@dataclass(frozen=True, slots=True)
class EndangeredPartition:
    """A partition that a broker's restart would hurt: `offline`, or `read only` as its ISR falls below
    `min.insync.replicas`."""

    topic: str
    partition: int
    effect: str
    isr: list[int]
    min_isr: int


@dataclass(frozen=True, slots=True)
class BrokerDetail:
    """A broker.

    address      of its listeners, as it registered them; empty: not known
    root         its storage; empty for a cluster that is known by its brokers' addresses
    endangered   what its restart would hurt now, at most 1,000 partitions
    configs_hidden, replicas_hidden  why these are not known
    """

    broker_id: int
    is_running: bool
    is_controller: bool
    rack: str | None
    address: str
    root: str
    leads: int
    replicas: int
    size_bytes: int
    replicas_hidden: str
    configs: list[ConfigRow]
    configs_hidden: str
    endangered: list[EndangeredPartition]
    read_ms: int


@dataclass(frozen=True, slots=True)
class MovingPartition:
    """A partition that moves. `caught_up` of `adding` are in the ISR already."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    caught_up: list[int]


@dataclass(frozen=True, slots=True)
class Reassignments:
    """Partitions that move now."""

    moves: list[MovingPartition]
    read_ms: int


ENDANGERED_MAX = 1_000
MIN_ISR = "min.insync.replicas"


def broker(asker: Asker, broker: int, sizes: bool) -> BrokerDetail:
    """A broker, for those who may describe the cluster. BrokerNotAvailableError for an unknown one."""
    asker.check(Operation.DESCRIBE, ResourceType.CLUSTER)
    view = asker.cluster.view
    about = asker.cluster.admin.describe_cluster()
    view.refresh(max_age_ms=1)
    found = next((each for each in about.brokers if each.broker_id == broker), None)
    if found is None:
        known = ", ".join(str(each.broker_id) for each in about.brokers)
        raise BrokerNotAvailableError(f"there is no broker {broker}, only {known}")
    topics = set(asker.visible(ResourceType.TOPIC, view.image.topic_ids))
    states = [state for named, state in view.image.partitions.items() if named.topic in topics]
    registered = view.image.brokers.get(broker)
    endpoint = None if registered is None else registered.registration.endpoint
    size_bytes, replicas_hidden = _size(asker, broker) if sizes else (-1, "not asked for")
    configs, configs_hidden = _configs(asker, broker)
    return BrokerDetail(
        broker,
        not found.fenced,
        broker == about.controller_id,
        found.rack,
        endpoint or "",
        "" if asker.cluster.is_served else found.root,
        sum(state.leader == broker for state in states),
        sum(broker in state.replicas for state in states),
        size_bytes,
        replicas_hidden,
        configs,
        configs_hidden,
        _endangered(asker, broker, topics),
        asker.now_ms,
    )


def _size(asker: Asker, broker_id: int) -> tuple[int, str]:
    try:
        found = asker.cluster.admin.describe_log_dirs([broker_id])[broker_id]
    except (StratalogError, KeyError) as reason:
        return -1, str(reason)
    if found.error is not None:
        return -1, str(found.error)
    return sum(max(0, each.size_bytes) for each in found.replicas.values()), ""


def _configs(asker: Asker, broker_id: int) -> tuple[list[ConfigRow], str]:
    if not asker.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return [], f"{asker.principal.name} is not allowed to DESCRIBE_CONFIGS of the cluster"
    try:
        return config_rows(asker.cluster.admin.broker_configs(broker_id)), ""
    except StratalogError as reason:
        return [], str(reason)


def _endangered(asker: Asker, broker_id: int, topics: set[str]) -> list[EndangeredPartition]:
    """As a rolling restart decides: a partition with as few replicas as its minimum is not protected by waiting."""
    view = asker.cluster.view
    found = []
    held = {
        named: state
        for named, state in view.image.partitions.items()
        if broker_id in state.replicas and named.topic in topics
    }
    minima = _minima(asker, {named.topic for named in held})
    for named, state in sorted(held.items()):
        left = [each for each in state.isr if each != broker_id]
        if named.topic not in minima:
            minima[named.topic] = int(view.image.topic_config(named.topic).get(MIN_ISR, "1"))
        min_isr = minima[named.topic]
        if not left and state.leader != NO_LEADER:
            found.append(EndangeredPartition(*named, "offline", list(state.isr), min_isr))
        elif len(left) < min_isr and broker_id in state.isr:
            found.append(EndangeredPartition(*named, "read only", list(state.isr), min_isr))
        if len(found) >= ENDANGERED_MAX:
            break
    return found


def _minima(asker: Asker, topics: set[str]) -> dict[str, int]:
    """`min.insync.replicas` of topics as brokers show it; none where storage has it."""
    admin = asker.cluster.admin
    if not isinstance(admin, WireAdmin) or not topics:
        return {}
    return {name: int(value) for name, value in admin.config_of_topics(MIN_ISR, sorted(topics)).items()}


def reassignments(asker: Asker) -> Reassignments:
    """Partitions of visible topics that move now."""
    asker.cluster.view.refresh(max_age_ms=1)
    asker.check(Operation.DESCRIBE, ResourceType.CLUSTER)
    found = asker.cluster.admin.list_partition_reassignments()
    topics = set(asker.visible(ResourceType.TOPIC, {each.topic for each in found}))
    moves = []
    for named, each in sorted(found.items()):
        if named.topic in topics:
            state = asker.cluster.view.image.partitions.get(named)
            isr = () if state is None else state.isr
            caught_up = [one for one in each.adding if one in isr]
            moves.append(
                MovingPartition(*named, list(each.replicas), list(each.adding), list(each.removing), caught_up)
            )
    return Reassignments(moves, asker.now_ms)


QUESTIONS = (
    Question(
        "broker",
        "A broker: what it leads and holds, its configs, and what its restart would endanger.",
        broker,
        {
            "broker": Parameter(int, "the broker's id"),
            "sizes": Parameter(bool, "the size of its replicas, which takes longer", True),
        },
    ),
    Question("reassignments", "Partitions that move between brokers, with progress.", reassignments),
)
