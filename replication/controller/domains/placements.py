"""Which brokers have a topic's replicas, and in which storage domains, by its configs. Pure.

`stratalog.storage.domain` says where the replicas are that lead, "" for their brokers' roots;
`stratalog.storage.copies` names further places, each with a copy that other brokers follow into: domains, or BROKERS
for these brokers' roots. A domain with racks is used by the brokers of these racks alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, Placed
from stratalog.replication.metadata.storage_domains import COPIES_CONFIG, DOMAIN_CONFIG, domain_of
from stratalog.storage import errors

BROKERS = "brokers"
"""Among the copies: in the brokers' roots. No domain has this name."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a topic's tables are: the domain of those that lead, and those of copies; "" for brokers' roots."""

    home: str
    copies: tuple[str, ...] = ()


def placement(state: PartitionRecord) -> tuple[Placed, ...]:
    """Where the replicas are, or are to be once the move under way is over; those at home come first."""
    return state.target or tuple((replica, state.domain_of(replica)) for replica in state.replicas)


def home_of(state: PartitionRecord) -> str:
    """The domain of the replicas that lead, or are to; "": their brokers' roots."""
    return state.target[0][1] if state.target else state.domain


def home_brokers(state: PartitionRecord) -> tuple[int, ...]:
    """The brokers that have no copy in another place, or will have none after a move under way."""
    home = home_of(state)
    return tuple(replica for replica, domain in placement(state) if domain == home)


def places_of(state: PartitionRecord) -> Places:
    """Where a partition is, or is to be."""
    home = home_of(state)
    copies = dict.fromkeys(domain for _, domain in placement(state) if domain != home)
    return Places(home, tuple(copies))


def places_by(image: ClusterImage, configs: Mapping[str, str]) -> Places:
    """Where a topic with these configs is to be. Raises UnknownStorageDomainError, InvalidConfigError for a domain that
    is not durable, or a place that is named twice."""
    home = configs.get(DOMAIN_CONFIG, "")
    named = [each.strip() for each in configs.get(COPIES_CONFIG, "").split(",") if each.strip()]
    copies = tuple("" if each == BROKERS else each for each in named)
    for config, name in ((DOMAIN_CONFIG, home), *((COPIES_CONFIG, each) for each in copies)):
        if name and not domain_of(image, name).durable:
            raise errors.InvalidConfigError(
                f"{config} is {name}, which is not durable: a partition has one copy there. Say that it is "
                "(strata metadata domains --add --durable) where the place itself keeps several, or set it to ''"
            )
    if len({home, *copies}) <= len(copies):
        raise errors.InvalidConfigError(
            f"{COPIES_CONFIG} is '{','.join(named)}' and {DOMAIN_CONFIG} '{home}': each place is named once"
        )
    return Places(home, copies)


def brokers_of(image: ClusterImage, name: str) -> list[int]:
    """The registered brokers that may have replicas in this domain, in order; "": all."""
    racks = domain_of(image, name).racks if name else ()
    return sorted(i for i, each in image.brokers.items() if not racks or each.registration.rack in racks)


def placed(image: ClusterImage, replicas: Sequence[int], places: Places, partition: int) -> tuple[Placed, ...]:
    """The placement of a new partition with these replicas at home. Raises InvalidConfigError: a copy without a
    broker."""
    found = tuple((replica, places.home) for replica in replicas)
    for copy in places.copies:
        found += _copied(image, found, copy, len(replicas), partition)
    return found


def retargeted(image: ClusterImage, state: PartitionRecord, places: Places) -> tuple[Placed, ...]:
    """The placement of a partition whose topic has these places from now on.

    Brokers keep their place where that stays; a copy that becomes the home leads with the brokers that it has.
    Raises InvalidConfigError, InvalidReplicationFactorError: too few brokers; InvalidRequestError: not now.
    """
    now, home = placement(state), home_brokers(state)
    if state.adding or state.removing:
        raise errors.InvalidRequestError(
            f"{state.topic_partition} is being reassigned: let that end, or cancel it, before it moves"
        )
    if again := sorted(set(state.left) & {places.home, *places.copies}):
        raise errors.InvalidRequestError(
            f"the table that {state.topic_partition} left in the storage domain '{again[0]}' is being deleted: "
            "try again later"
        )
    holders = tuple(r for r, domain in now if domain == places.home)
    found = tuple((r, places.home) for r in holders or _at_home(image, home, places.home, len(home)))
    for copy in places.copies:
        taken = {replica for replica, _ in found}
        kept = tuple((r, domain) for r, domain in now if domain == copy and r not in taken)
        found += kept or _copied(image, found, copy, len(home), state.partition)
    return found


def check_may_move(image: ClusterImage, state: PartitionRecord, target: Iterable[Placed]) -> None:
    """InvalidRequestError where the only broker leads and would have to follow itself."""
    wanted = dict(target)
    is_alone = set(wanted) == set(state.replicas) == {state.leader}
    if is_alone and image.live_brokers().keys() <= {state.leader} and wanted[state.leader] != state.domain:
        raise errors.InvalidRequestError(
            f"{state.topic_partition} cannot move with one broker: another one copies it first, and none but "
            f"{state.leader} is live. Start a second broker"
        )


def _at_home(image: ClusterImage, before: Sequence[int], name: str, count: int) -> tuple[int, ...]:
    """The brokers of a home in another place: those of before that may use it, then others."""
    allowed, live = brokers_of(image, name), image.live_brokers()
    kept = [r for r in before if r in allowed]
    chosen = [*kept, *(r for r in allowed if r in live and r not in kept)][:count]
    if len(chosen) < count:
        raise errors.InvalidReplicationFactorError(
            f"the storage domain '{name}' is used by the brokers {allowed}: {count} replicas need as many"
        )
    return tuple(chosen)


def _copied(image: ClusterImage, others: Iterable[Placed], name: str, count: int, partition: int) -> tuple[Placed, ...]:
    """The replicas of a copy: on as many live brokers as there are at home, or on those that are left."""
    taken, live = {replica for replica, _ in others}, image.live_brokers()
    free = [r for r in brokers_of(image, name) if r in live and r not in taken]
    if not free:
        where = f"the storage domain '{name}'" if name else "a broker's root"
        raise errors.InvalidConfigError(
            f"{COPIES_CONFIG}: a copy in {where} needs a live broker that may use it and has no replica of the "
            f"partition yet; {sorted(taken)} have one"
        )
    first = partition % len(free)
    return tuple((r, name) for r in [*free[first:], *free[:first]][:count])
