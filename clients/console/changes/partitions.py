"""Partitions move to other brokers, slower or not at all; preferred replicas lead again. I/O: the cluster."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.changes.change import ClusterChange, Preview, PreviewLine
from stratalog.clients.console.question import Parameter
from stratalog.clients.console.times import duration
from stratalog.replication.controller.election.preferred_leaders import ElectionType
from stratalog.replication.controller.reassignment import PartitionReassignment, propose_assignment
from stratalog.replication.follower.quota import FOLLOWER_REPLICAS, LEADER_REPLICAS
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.configs import FOLLOWER_RATE, LEADER_RATE
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.errors import (
    ElectionNotNeededError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition

ALL, UNTHROTTLED = -1, 0
LINES_MAX = 500
BYTES_PER_S_MIN, MEBIBYTE = 1 << 10, 1 << 20
NO_LIMIT = "no limit"


def _may_alter(asker: Asker) -> None:
    asker.check(Operation.ALTER, ResourceType.CLUSTER)


def _states(asker: Asker, topic: str, partition: int) -> list[PartitionRecord]:
    """The partitions that a form names. UnknownTopicOrPartitionError."""
    asker.check_topic(topic)
    view = asker.cluster.view
    view.refresh()
    if topic not in view.topics():
        raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
    found = asker.cluster.admin.describe_topics([topic])[topic].partitions
    wanted = [each for each in found if partition in (ALL, each.partition)]
    if not wanted:
        raise UnknownTopicOrPartitionError(f"{topic} has partitions 0 to {len(found) - 1}, not {partition}")
    return wanted


def brokers_of(text: str) -> list[int]:
    """Ids with commas between. InvalidRequestError.

    >>> brokers_of("4, 5,6")
    [4, 5, 6]
    """
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError as reason:
        raise InvalidRequestError(f"{text!r} is no list of broker ids, as 1,2,3") from reason
    if len(set(found)) < len(found):
        raise InvalidRequestError(f"{text!r} names a broker twice")
    return found


def _targets(asker: Asker, topic: str, partition: int, brokers: str) -> dict[PartitionRecord, tuple[int, ...]]:
    """Each partition with its replicas afterwards. The same form gives the same placement."""
    states = _states(asker, topic, partition)
    wanted = brokers_of(brokers)
    live = {each.broker_id: each.rack for each in asker.cluster.admin.describe_cluster().brokers if not each.fenced}
    down = [each for each in wanted if each not in live]
    if down:
        raise InvalidReplicaAssignmentError(f"brokers {_listed(down)} do not run; these do: {_listed(sorted(live))}")
    if partition != ALL:
        return {states[0]: tuple(wanted)}
    has_racks = all(live[each] is not None for each in wanted)
    racks = {each: live[each] if has_racks else None for each in wanted}
    current = {each.topic_partition: _settled(each) for each in states}
    seed = zlib.crc32(topic.encode())
    placed = propose_assignment(current, racks, start_index=seed & 0xFFFF, shift=seed >> 16)
    return {each: placed[each.topic_partition] for each in states}


def _settled(state: PartitionRecord) -> tuple[int, ...]:
    """The replicas, once what moves now has arrived."""
    return tuple(each for each in state.replicas if each not in state.removing)


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _check_rate(bytes_per_s: int) -> None:
    if bytes_per_s != UNTHROTTLED and bytes_per_s < BYTES_PER_S_MIN:
        raise InvalidRequestError(f"a limit is at least {BYTES_PER_S_MIN} bytes/s, or {UNTHROTTLED} for none")


# -- moves -----------------------------------------------------------------------------------------------------------


def preview_move(asker: Asker, topic: str, partition: int, brokers: str, throttle: int) -> Preview:
    _may_alter(asker)
    _check_rate(throttle)
    targets = _targets(asker, topic, partition, brokers)
    changed = {state: after for state, after in targets.items() if after != state.replicas}
    lines = [
        PreviewLine(str(state.topic_partition), _listed(state.replicas), _listed(after))
        for state, after in changed.items()
    ]
    copies = {state: len(set(after) - set(state.replicas)) for state, after in changed.items()}
    warnings = [] if changed else ["Nothing moves: the replicas are there already."]
    if changed:
        warnings.append(_volume(asker, topic, copies, throttle))
    if any(len(after) != len(_settled(state)) for state, after in changed.items()):
        warnings.append("The number of replicas changes.")
    if any(state.adding or state.removing for state in targets):
        warnings.append("Some of these partitions move already: the new target replaces the old one.")
    if throttle:
        lines.append(PreviewLine("limit of each broker", _rate_now(asker), f"{throttle} bytes/s"))
        warnings.append("The limit stays until you remove it, with all moves under way.")
    return Preview(lines[:LINES_MAX], warnings, max(0, len(lines) - LINES_MAX))


def _volume(asker: Asker, topic: str, copies: Mapping[PartitionRecord, int], throttle: int) -> str:
    """How much is copied, in words."""
    count = sum(copies.values())
    if not count:
        return "Nothing is copied: only the order of replicas changes, or some are dropped."
    try:
        found = asker.cluster.admin.describe_log_dirs(topics=[topic])
    except StratalogError as reason:
        return f"{count} replicas are copied; how much that is could not be read: {reason}"
    sizes = {
        (broker_id, named): replica.size_bytes
        for broker_id, each in found.items()
        for named, replica in each.replicas.items()
    }
    bytes_copied = [sizes.get((state.leader, state.topic_partition), -1) * each for state, each in copies.items()]
    if any(each < 0 for each in bytes_copied):
        return f"{count} replicas are copied; the size of some is not known, as of those without a leader."
    total = sum(bytes_copied)
    time = f", {duration(1_000 * total / throttle)} through one broker at this limit" if throttle and total else ""
    return f"{count} replicas are copied: {total / MEBIBYTE:,.1f} MiB by today's sizes{time}."


def move(asker: Asker, topic: str, partition: int, brokers: str, throttle: int) -> str:
    _may_alter(asker)
    _check_rate(throttle)
    targets = _targets(asker, topic, partition, brokers)
    wanted = {state.topic_partition: after for state, after in targets.items() if after != state.replicas}
    if not wanted:
        return f"Nothing of {topic} moves: its replicas are there already."
    if throttle:
        asker.cluster.admin.throttle(wanted, throttle)
    _raise_first(asker.cluster.admin.alter_partition_reassignments(wanted))
    return f"{len(wanted)} partitions of {topic} move."


def _raise_first(answers: Mapping[TopicPartition, StratalogError | None]) -> None:
    error = next((each for each in answers.values() if each is not None), None)
    if error is not None:
        raise error


def _moving(asker: Asker, topic: str, partition: int) -> dict[TopicPartition, PartitionReassignment]:
    """The moves that a form names. NoReassignmentInProgressError when there is none."""
    if topic:
        asker.check_topic(topic)
    asker.cluster.view.refresh()
    under_way = asker.cluster.admin.list_partition_reassignments()
    topics = set(asker.visible(ResourceType.TOPIC, {each.topic for each in under_way}))
    found = {
        named: each
        for named, each in sorted(under_way.items())
        if named.topic in topics and topic in ("", named.topic) and partition in (ALL, named.partition)
    }
    if not found:
        raise NoReassignmentInProgressError("none of these partitions moves now")
    return found


def preview_cancel(asker: Asker, topic: str, partition: int) -> Preview:
    _may_alter(asker)
    lines = [
        PreviewLine(
            str(named), _listed(each.replicas), _listed([one for one in each.replicas if one not in each.adding])
        )
        for named, each in _moving(asker, topic, partition).items()
    ]
    warning = "What was copied already is deleted. A limit stays: remove it, too."
    return Preview(lines[:LINES_MAX], [warning], max(0, len(lines) - LINES_MAX))


def cancel(asker: Asker, topic: str, partition: int) -> str:
    _may_alter(asker)
    moving = _moving(asker, topic, partition)
    _raise_first(asker.cluster.admin.alter_partition_reassignments(dict.fromkeys(moving)))
    return f"{len(moving)} partitions stay where they were."


# -- limits of moves -------------------------------------------------------------------------------------------------


def _rate_now(asker: Asker) -> str:
    """The limit that was altered for all brokers."""
    found = {each.name: each for each in asker.cluster.admin.describe_cluster_configs()}
    rates = [found[name] for name in (LEADER_RATE, FOLLOWER_RATE) if name in found]
    altered = {f"{each.text} bytes/s" for each in rates if each.source != "DEFAULT_CONFIG"}
    return ", ".join(sorted(altered)) or NO_LIMIT


def _limited_topics(asker: Asker) -> list[str]:
    """Topics with replicas that are limited."""
    described = asker.cluster.admin.describe_topics()
    names = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
    return sorted(topic for topic, each in described.items() if any(each.configs.get(name) for name in names))


def preview_throttle(asker: Asker, bytes_per_s: int) -> Preview:
    _may_alter(asker)
    _check_rate(bytes_per_s)
    line = PreviewLine("limit of each broker", _rate_now(asker), f"{bytes_per_s} bytes/s" if bytes_per_s else NO_LIMIT)
    if bytes_per_s:
        return Preview([line, *(PreviewLine(str(named), "moves", "limited") for named in _moving(asker, "", ALL))])
    topics = asker.visible(ResourceType.TOPIC, _limited_topics(asker))
    return Preview([line, *(PreviewLine(f"limited replicas of {topic}", "listed", "none") for topic in topics)])


def throttle(asker: Asker, bytes_per_s: int) -> str:
    _may_alter(asker)
    _check_rate(bytes_per_s)
    if not bytes_per_s:
        asker.cluster.admin.unthrottle(_limited_topics(asker))
        return "Moves are not limited any more."
    _moving(asker, "", ALL)
    asker.cluster.admin.throttle({}, bytes_per_s)
    return f"Each broker copies at most {bytes_per_s} bytes/s for moves."


# -- preferred leaders -----------------------------------------------------------------------------------------------


def _unpreferred(asker: Asker, topic: str) -> list[PartitionRecord]:
    """Partitions that another replica leads than the first one."""
    if topic:
        found = _states(asker, topic, ALL)
    else:
        asker.cluster.view.refresh()
        topics = asker.visible(ResourceType.TOPIC, asker.cluster.view.topics())
        found = [each for name in topics for each in asker.cluster.admin.describe_topics([name])[name].partitions]
    return [each for each in found if each.replicas and each.leader != each.replicas[0]]


def preview_elect(asker: Asker, topic: str) -> Preview:
    _may_alter(asker)
    found = _unpreferred(asker, topic)
    able = [each for each in found if each.replicas[0] in each.isr]
    lines = [PreviewLine(f"leader of {each.topic_partition}", str(each.leader), str(each.replicas[0])) for each in able]
    warnings = [] if able else ["Nothing changes: every partition that can be is led by its first replica."]
    if len(found) > len(able):
        warnings.append(f"{len(found) - len(able)} partitions keep their leader: their first replica is not in sync.")
    return Preview(lines[:LINES_MAX], warnings, max(0, len(lines) - LINES_MAX))


def elect(asker: Asker, topic: str) -> str:
    _may_alter(asker)
    able = [each.topic_partition for each in _unpreferred(asker, topic) if each.replicas[0] in each.isr]
    if not able:
        return "Nothing changed: every partition that can be is led by its first replica."
    answers = asker.cluster.admin.elect_leaders(ElectionType.PREFERRED, able)
    _raise_first({named: each for named, each in answers.items() if not isinstance(each, ElectionNotNeededError)})
    return f"{len(able)} partitions are led by their first replica."


def _moves_page(_: Mapping[str, object]) -> str:
    return "/reassignments"


_THROTTLE = f"bytes/s that each broker copies at most for moves; {UNTHROTTLED}: {NO_LIMIT}"
_PARTITION = Parameter(int, f"only this one; {ALL}: all of the topic", ALL)
CHANGES = (
    ClusterChange(
        "move_partitions",
        "Move partitions",
        "Moves partitions of a topic to other brokers while they stay available. Of all partitions replicas are placed "
        "anew over the brokers, as many as now; of one partition the brokers are its replicas, the preferred leader "
        "first.",
        {
            "topic": Parameter(str, "the topic"),
            "brokers": Parameter(str, "ids with commas between, as 1,2,3"),
            "partition": _PARTITION,
            "throttle": Parameter(int, _THROTTLE, UNTHROTTLED),
        },
        preview_move,
        move,
        _moves_page,
    ),
    ClusterChange(
        "cancel_moves",
        "Cancel moves",
        "Returns partitions that move to the replicas that they had.",
        {"topic": Parameter(str, "only of this topic; empty: all that move", ""), "partition": _PARTITION},
        preview_cancel,
        cancel,
        _moves_page,
    ),
    ClusterChange(
        "limit_moves",
        "Limit moves",
        "Changes how fast partitions under way are copied, or removes the limit.",
        {"bytes_per_s": Parameter(int, _THROTTLE, UNTHROTTLED)},
        preview_throttle,
        throttle,
        _moves_page,
    ),
    ClusterChange(
        "elect_preferred_leaders",
        "Elect preferred leaders",
        "Lets the first replica of each partition lead again, where it is in sync. No record is lost.",
        {"topic": Parameter(str, "only of this topic; empty: all", "")},
        preview_elect,
        elect,
        lambda _: "/brokers",
    ),
)
