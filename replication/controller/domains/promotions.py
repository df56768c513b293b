"""A storage domain with copies becomes the home of all topics that it has a copy of. Pure.

A promotion alters configs, those for topics to come too: from then on the topics are led in the domain, and where they
were led before are copies. Where the copy is in the ISR nothing is lost, whether the old home lives or not. Where it is
behind and the old home leads, the move waits until it has caught up. Where it is behind and nobody can lead, only an
unclean election helps: what the copy lacks is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from stratalog.replication.controller.cluster_configs import alter_cluster_configs
from stratalog.replication.controller.domains.moves import arriving
from stratalog.replication.controller.domains.placements import BROKERS, Places, places_by, places_of
from stratalog.replication.controller.election.eligible_leaders import update_eligible_leaders
from stratalog.replication.controller.election.leader_election import Election
from stratalog.replication.controller.topics import ConfigCheck, alter_config
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import MetadataRecord, PartitionRecord
from stratalog.replication.metadata.storage_domains import COPIES_CONFIG, DOMAIN_CONFIG, domain_of
from stratalog.storage import errors
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Promotion:
    """The outcome: the topics whose home is another from now on, the partitions that move there once their copy has
    caught up, and those that lost what their copy lacks."""

    topics: tuple[str, ...]
    waiting: tuple[TopicPartition, ...]
    unclean: tuple[TopicPartition, ...]


def promote_storage_domain(
    image: ClusterImage, name: str, *, leave: Collection[str] = (), unclean: bool = False, check_configs: ConfigCheck
) -> Result[Promotion]:
    """Make a domain the home of all topics with a copy there.

    leave    domains that keep no copy, as those that are gone for good
    unclean  let a copy lead that is behind, where nobody else can
    Raises UnknownStorageDomainError, InvalidRequestError: no topic has a copy there;
    EligibleLeadersNotAvailableError: a copy is behind, nobody else can lead, and `unclean` is not set.
    """
    domain_of(image, name)
    after, records = image, list[MetadataRecord]()
    topics = [topic for topic in sorted(image.topic_ids) if name in _places(image, topic).copies]
    if not topics:
        raise errors.InvalidRequestError(f"no topic has a copy in the storage domain '{name}'")
    defaults = places_by(image, image.topic_defaults)
    if name in defaults.copies:  # topics to come are not to be made in the old home
        records += alter_cluster_configs(image, _promoted(defaults, name, leave)).records
        after = image.fold(*records)
    for topic in topics:
        changes = _promoted(_places(image, topic), name, leave)
        decided = alter_config(after, topic, changes, check_configs=check_configs).records
        after, records = after.fold(*decided), [*records, *decided]
    behind = list(_behind(after, topics, name))
    if behind and not unclean:
        raise errors.EligibleLeadersNotAvailableError(
            f"{len(behind)} partitions, first {behind[0].topic_partition}, have no leader, and their copy in the "
            f"storage domain '{name}' is not in sync (ISR {list(behind[0].isr)}): wait for a member of the ISR, or "
            "promote it uncleanly, which loses what it lacks"
        )
    elected = update_eligible_leaders(image, [_led_there(image, state, name) for state in behind])
    after = after.fold(*elected)
    replaced = {state.key for state in behind}
    records = [each for each in records if each.key not in replaced]
    states = [after.partitions[each] for topic in topics for each in after.partitions_of(topic)]
    waiting = tuple(state.topic_partition for state in states if arriving(state))
    outcome = Promotion(tuple(topics), waiting, tuple(state.topic_partition for state in behind))
    return Result((*records, *elected), outcome)


def _promoted(before: Places, name: str, leave: Collection[str]) -> dict[str, str | None]:
    """The configs of what has been at these places."""
    kept = [each or BROKERS for each in (before.home, *before.copies) if each != name and each not in leave]
    return {DOMAIN_CONFIG: name, COPIES_CONFIG: ",".join(kept)}


def _places(image: ClusterImage, topic: str) -> Places:
    """Those of the topic's first partition, or of none."""
    partitions = image.partitions_of(topic)
    return places_of(image.partitions[partitions[0]]) if partitions else Places("")


def _behind(image: ClusterImage, topics: Collection[str], name: str) -> Iterator[PartitionRecord]:
    """The partitions that nobody can lead, and whose copy in the domain is not in the ISR."""
    live = image.live_brokers()
    for topic in topics:
        for each in image.partitions_of(topic):
            state = image.partitions[each]
            is_led = state.leader in live and state.leader not in state.offline
            there = [r for r in state.replicas if state.domain_of(r) == name and r in live and r not in state.offline]
            if not is_led and there and not any(state.is_held_in_sync(r) for r in there):
                yield state


def _led_there(image: ClusterImage, target: PartitionRecord, name: str) -> PartitionRecord:
    """The partition led uncleanly by its copy, with this target."""
    state, live = image.partitions[target.topic_partition], image.live_brokers()
    there = (r for r in state.replicas if state.domain_of(r) == name and r in live and r not in state.offline)
    leader = next(there)
    changed = Election(leader, (leader,), unclean=True).applied_to(state, image.controller_epoch)
    return replace(changed, target=target.target)
