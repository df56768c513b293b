"""Topics: creation, growth, configs and deletion, as decisions on the image. Pure.

Answers and errors are Kafka's. A refused request raises its error and commits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from stratalog.replication.controller.domains.moves import moved
from stratalog.replication.controller.domains.placements import (
    Places,
    brokers_of,
    check_may_move,
    home_brokers,
    placed,
    placement,
    places_by,
    places_of,
    retargeted,
)
from stratalog.replication.controller.election.eligible_leaders import end_eligibility, min_isr_of, topic_min_isr
from stratalog.replication.controller.placement import assign_replicas, check_assignment, check_replica_count
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicDeletionRecord,
    TopicRecord,
)
from stratalog.replication.metadata.storage_domains import COPIES_CONFIG, DOMAIN_CONFIG
from stratalog.storage import errors

MAX_NAME_LENGTH = 249
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
NOT_GIVEN = -1
NEW_PARTITIONS_MAX = 10_000
"""Of one request. Kafka: `ReplicationControlManager.MAX_PARTITIONS_PER_BATCH` (KAFKA-17870)."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")

ConfigCheck = Callable[[Mapping[str, str]], object]
"""Raises InvalidConfigError for illegal configs of a topic (Kafka name -> value)."""

Assignment = Mapping[int, Sequence[int]]
"""Partition -> replicas, the preferred leader first."""


def check_topic_name(name: str) -> None:
    """InvalidTopicError in Kafka's words unless `name` is a legal topic name."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise errors.InvalidTopicError(f"Topic name is invalid: {reason}")


def check_new_partitions(count: int) -> None:
    """Refuse to make too many partitions at once, before anything is made for them. Raises PolicyViolationError."""
    if count > NEW_PARTITIONS_MAX:
        raise errors.PolicyViolationError(
            f"Excessively large number of partitions per request: {count} new ones, at most {NEW_PARTITIONS_MAX}."
        )


def create_topic(
    image: ClusterImage,
    name: str,
    topic_id: str,
    partitions: int = NOT_GIVEN,
    replication_factor: int = NOT_GIVEN,
    assignment: Assignment | None = None,
    configs: Mapping[str, str] | None = None,
    *,
    start_index: int = 0,
    shift: int = 0,
    check_configs: ConfigCheck,
) -> Result[str]:
    """Create a topic with numbers of partitions and replicas, or with an `assignment`; the answer is its topic id.

    The defaults of the numbers are the cluster's `num.partitions` and `default.replication.factor`.
    `start_index` and `shift` are the caller's random numbers for `assign_replicas`, which uses live brokers only.
    The leader is the first live replica, the ISR the live ones, all epochs start at 0. A topic with the same `topic_id`
    is the caller's own earlier success. Raises PolicyViolationError (more than 10,000 partitions), InvalidTopicError,
    TopicAlreadyExistsError, InvalidPartitionsError, InvalidReplicationFactorError, InvalidReplicaAssignmentError,
    InvalidRequestError (an `assignment` and numbers), and the errors of `check_configs`, `places_by` and `placed`.
    """
    check_topic_name(name)
    if image.topic_ids.get(name) == topic_id:
        return Result((), topic_id)
    _check_name_is_free(image, name)
    overrides = dict(configs or {})
    check_configs({**image.topic_defaults, **overrides})
    places = places_by(image, {**image.topic_defaults, **overrides})
    if assignment is None:
        partitions, replication_factor = _or_defaults(image, partitions, replication_factor)
        check_new_partitions(partitions)
        assignment = _placed(image, places.home, 0, partitions, replication_factor, start_index, shift)
    else:
        _check_not_given(partitions, replication_factor)
        check_new_partitions(len(assignment))
        check_assignment(assignment, image.brokers)
    config_records = (ConfigRecord(name, key, value) for key, value in sorted(overrides.items()))
    states = _new_partitions(image, name, assignment, places)
    return Result((TopicRecord(name, topic_id), *config_records, *states), topic_id)


def create_partitions(
    image: ClusterImage,
    name: str,
    count: int,
    assignment: Assignment | None = None,
    *,
    start_index: int = 0,
    shift: int = 0,
) -> Result[int]:
    """Grow a topic to `count` partitions; the answer is the number of new ones.

    `assignment` names the replicas of the new partitions. Their number is that of the topic's partition 0, without
    those that a reassignment is adding. Raises UnknownTopicOrPartitionError, InvalidPartitionsError (no increase; an
    internal topic, whose keys depend on the number of partitions: Kafka only documents that it "should not change after
    deployment"), and as `create_topic`.
    """
    existing = _existing_partitions(image, name)
    if is_internal(name):
        raise errors.InvalidPartitionsError(f"The number of partitions of internal topic {name} cannot be changed.")
    if count == len(existing):
        raise errors.InvalidPartitionsError(f"Topic already has {count} partition(s).")
    if count < len(existing):
        raise errors.InvalidPartitionsError(
            f"The topic {name} currently has {len(existing)} partition(s); {count} would not be an increase."
        )
    new = count - len(existing)
    check_new_partitions(new)
    replication_factor, places = len(_original_replicas(existing[0])), places_of(existing[0])
    if assignment is None:
        assignment = _placed(image, places.home, len(existing), new, replication_factor, start_index, shift)
    else:
        check_assignment(assignment, image.brokers, first_partition=len(existing))
        _check_growth(assignment, new, replication_factor)
    return Result(tuple(_new_partitions(image, name, assignment, places)), new)


def _original_replicas(state: PartitionRecord) -> tuple[int, ...]:
    """Those at home, without what a reassignment adds."""
    return tuple(r for r in home_brokers(state) if r not in state.adding)


def _or_defaults(image: ClusterImage, partitions: int, replication_factor: int) -> tuple[int, int]:
    if partitions == NOT_GIVEN:
        partitions = int(image.cluster_config("num.partitions", "1"))
    if replication_factor == NOT_GIVEN:
        replication_factor = int(image.cluster_config("default.replication.factor", "1"))
    return partitions, replication_factor


def delete_topic(image: ClusterImage, name: str, topic_id: str | None = None) -> Result[str]:
    """Delete a topic; the answer is its topic id. Brokers that fold the record stop and delete their replicas.

    topic_id  only the topic with this id, not a later one of the name: UnknownTopicIdError
    Raises TopicDeletionDisabledError unless the cluster's `delete.topic.enable`, UnknownTopicOrPartitionError, and
    InvalidTopicError for an internal topic, as Kafka before KRaft: the state of groups and transactions would be lost.
    """
    if is_internal(name):
        raise errors.InvalidTopicError(
            f"Topic {name} is a kafka internal topic and is not allowed to be marked for deletion."
        )
    if image.cluster_config("delete.topic.enable", "true") != "true":
        raise errors.TopicDeletionDisabledError("Topic deletion is disabled.")
    known_id = _known_topic(image, name)
    if topic_id not in (None, known_id):
        raise errors.UnknownTopicIdError(f"topic '{name}' has the id {known_id} by now, not {topic_id}")
    states = _existing_partitions(image, name)
    brokers = sorted({replica for state in states for replica in state.replicas})
    domains = sorted({domain for state in states for domain in state.domains})
    deletion = TopicDeletionRecord(name, known_id, len(states), tuple(brokers), tuple(domains))
    return Result((RemoveTopicRecord(name, known_id), deletion), known_id)


def alter_config(
    image: ClusterImage, name: str, changes: Mapping[str, str | None], *, check_configs: ConfigCheck
) -> Result[dict[str, str]]:
    """Set overrides of a topic, or remove those given as None; the answer is all overrides afterwards.

    `check_configs` gets the configs afterwards, with the defaults of the cluster. Where they place the topic elsewhere,
    its partitions begin to move (`domains.moves`). Raises UnknownTopicOrPartitionError, and the errors of
    `check_configs`, `places_by` and `retargeted`.
    """
    _known_topic(image, name)
    before, defaults = image.topic_overrides(name), image.topic_defaults
    after = {key: value for key, value in {**before, **changes}.items() if value is not None}
    check_configs({**defaults, **after})
    moves = _moves(image, name, {**defaults, **after}) if {DOMAIN_CONFIG, COPIES_CONFIG} & changes.keys() else ()
    changed = [key for key in sorted(changes) if before.get(key) != after.get(key)]
    is_lowered = min_isr_of({**defaults, **after}) < topic_min_isr(image, name)
    states = {state.topic_partition: state for state in end_eligibility(image, name)} if is_lowered else {}
    states |= {
        state.topic_partition: replace(state, elr=(), last_known_elr=()) if is_lowered else state for state in moves
    }
    return Result((*(ConfigRecord(name, key, after.get(key)) for key in changed), *states.values()), after)


def _moves(image: ClusterImage, name: str, configs: Mapping[str, str]) -> list[PartitionRecord]:
    """The partitions that these configs move, each with its target, or without one where it is there."""
    places, found = places_by(image, configs), list[PartitionRecord]()
    for state in _existing_partitions(image, name):
        target = retargeted(image, state, places)
        if target == placement(state):
            continue
        check_may_move(image, state, target)
        is_there = target == tuple((replica, state.domain_of(replica)) for replica in state.replicas)
        after = replace(state, target=() if is_there else target)
        found.append(moved(state, after, image.controller_epoch))
    return found


def _check_name_is_free(image: ClusterImage, name: str) -> None:
    if name in image.topic_ids:
        raise errors.TopicAlreadyExistsError(f"Topic '{name}' already exists.")
    if name == CLUSTER_METADATA_TOPIC:
        raise errors.InvalidRequestError(f"Creation of internal topic {name} is prohibited.")
    for other in image.topic_ids:
        # In metric names both characters are the same, so Kafka refuses such names.
        if other.replace(".", "_") == name.replace(".", "_"):
            raise errors.InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")


def _check_not_given(partitions: int, replication_factor: int) -> None:
    for what, number in (("replication factor", replication_factor), ("numPartitions", partitions)):
        if number != NOT_GIVEN:
            raise errors.InvalidRequestError(
                f"A manual partition assignment was specified, but {what} was not set to -1."
            )


def _check_growth(assignment: Assignment, new: int, replication_factor: int) -> None:
    if len(assignment) != new:
        raise errors.InvalidReplicaAssignmentError(
            f"Attempted to add {new} additional partition(s), but only {len(assignment)} assignment(s) were specified."
        )
    check_replica_count(len(next(iter(assignment.values()))), replication_factor)


def _known_topic(image: ClusterImage, name: str) -> str:
    topic_id = image.topic_ids.get(name)
    if topic_id is None:
        raise errors.UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
    return topic_id


def _existing_partitions(image: ClusterImage, name: str) -> list[PartitionRecord]:
    _known_topic(image, name)
    return [image.partitions[topic_partition] for topic_partition in image.partitions_of(name)]


def _placed(
    image: ClusterImage, home: str, first: int, partitions: int, replication_factor: int, start_index: int, shift: int
) -> dict[int, tuple[int, ...]]:
    live = image.live_brokers()
    racks = {i: live[i].registration.rack for i in brokers_of(image, home) if i in live}
    placed = assign_replicas(
        racks, partitions, replication_factor, start_index=start_index, shift=shift, first_partition=first
    )
    return dict(enumerate(placed, start=first))


def _new_partitions(
    image: ClusterImage, name: str, assignment: Assignment, places: Places
) -> Iterable[PartitionRecord]:
    """With copies in other places each begins with the replicas at home in sync; the others copy."""
    live = image.live_brokers()
    for partition, replicas in sorted(assignment.items()):
        isr = tuple(r for r in replicas if r in live)
        if not isr:
            raise errors.InvalidReplicaAssignmentError(
                f"All brokers specified in the manual partition assignment for partition {partition} are fenced or "
                "in controlled shutdown."
            )
        target = placed(image, replicas, places, partition)
        yield PartitionRecord(
            topic=name,
            partition=partition,
            replicas=tuple(replica for replica, _ in target),
            leader=isr[0],
            leader_epoch=0,
            isr=isr,
            partition_epoch=0,
            controller_epoch=image.controller_epoch,
            domain=places.home,
            elsewhere=target[len(replicas) :],
        )
