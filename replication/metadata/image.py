"""The image: the cluster folded from the records of `__cluster_metadata`. Pure.

Only `ClusterImage.replay` changes an image. Decisions read it and return a `Result`: new records and an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Generic, TypeVar

from stratalog.replication.log_configs import defaults_by_topic_config, is_kafkas
from stratalog.replication.metadata.records import (
    CLUSTER_WIDE,
    DYNAMIC_DEFAULT,
    NO_LEADER,
    AccessControlEntryRecord,
    ClusterRecord,
    ConfigRecord,
    ControllerRecord,
    EraseRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TombstoneRecord,
    TopicDeletionRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    of_broker,
)
from stratalog.storage.errors import StaleBrokerEpochError, UnknownTopicOrPartitionError
from stratalog.storage.records import IdentifiedPartition, TopicPartition

AccessRecord = (
    AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
)


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker's registration. A fenced broker leads nothing."""

    registration: RegisterBrokerRecord
    fenced: bool = False
    clean_shutdown: bool = False

    @property
    def broker_epoch(self) -> int:
        return self.registration.broker_epoch


@dataclass(slots=True)
class ClusterImage:
    """The cluster's state. Each part of a broker owns an image of its own.

    ended           keys of records that are in the log and mean nothing any more: tombstones let compaction remove them
    topic_defaults  what the brokers of the cluster were given for all topics, by topic config: part of `configs`,
                    without those that are Kafka's
    topic_changes   grows whenever topics or partitions come or go: what was found of them holds while it stays
    """

    cluster_id: str = ""
    controller_id: int = NO_LEADER
    controller_epoch: int = 0
    brokers: dict[int, BrokerState] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionRecord] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    erases: dict[str, dict[int, EraseRecord]] = field(default_factory=dict)
    deletions: dict[str, TopicDeletionRecord] = field(default_factory=dict)
    partitions_by_topic: dict[str, set[TopicPartition]] = field(default_factory=dict)
    acls: dict[str, AccessControlEntryRecord] = field(default_factory=dict)
    scram_credentials: dict[tuple[str, str], UserScramCredentialRecord] = field(default_factory=dict)
    """By user and mechanism."""
    next_producer_id: int = 0
    last_broker_epoch: int = 0
    ended: set[str] = field(default_factory=set)
    topic_defaults: dict[str, str] = field(default_factory=dict)
    topic_changes: int = field(default=0, compare=False)

    def replay(self, record: MetadataRecord) -> None:
        """Fold one record in."""
        self.ended.discard(record.key)
        match record:
            case PartitionRecord():
                self.topic_changes += record.topic_partition not in self.partitions
                self.partitions[record.topic_partition] = record
                self.partitions_by_topic.setdefault(record.topic, set()).add(record.topic_partition)
            case RegisterBrokerRecord() | FenceBrokerRecord() | UnregisterBrokerRecord():
                self._replay_broker(record)
            case ControllerRecord() | ClusterRecord() | ProducerIdsRecord():
                self._replay_cluster(record)
            case TopicRecord() | RemoveTopicRecord() | TopicDeletionRecord():
                self._replay_topic(record)
            case ConfigRecord():
                self._replay_config(record)
            case EraseRecord():
                self.erases.setdefault(record.topic, {})[record.erase_id] = record
            case TombstoneRecord():
                self._replay_tombstone(record.key)
            case _:
                self._replay_access(record)

    def replace_with(self, other: ClusterImage) -> None:
        """Become the same as another image, which is given up: whoever holds this one sees the new state."""
        changes = self.topic_changes + other.topic_changes + 1
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))
        self.topic_changes = changes

    def _replay_cluster(self, record: ControllerRecord | ClusterRecord | ProducerIdsRecord) -> None:
        match record:
            case ControllerRecord():
                self.controller_id = record.controller_id
                self.controller_epoch = record.controller_epoch
            case ClusterRecord():
                self.cluster_id = record.cluster_id
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id

    def _replay_broker(self, record: RegisterBrokerRecord | FenceBrokerRecord | UnregisterBrokerRecord) -> None:
        self.last_broker_epoch = max(self.last_broker_epoch, record.broker_epoch)
        if isinstance(record, RegisterBrokerRecord):
            self.brokers[record.broker_id] = BrokerState(record)
            return
        if isinstance(record, UnregisterBrokerRecord):
            self.brokers.pop(record.broker_id, None)
            return
        known = self.brokers.get(record.broker_id)
        if known and known.broker_epoch == record.broker_epoch:
            self.brokers[record.broker_id] = replace(known, fenced=True, clean_shutdown=record.clean)

    def _replay_topic(self, record: TopicRecord | RemoveTopicRecord | TopicDeletionRecord) -> None:
        if isinstance(record, TopicDeletionRecord):
            self.deletions.pop(record.topic_id, None)
            if record.brokers:
                self.deletions[record.topic_id] = record
            else:
                self.ended.add(record.key)
            return
        self._remove_topic(record.name)  # before a new topic, too: compaction may have left parts of an older one
        self.topic_changes += 1
        if isinstance(record, TopicRecord):
            self.topic_ids[record.name] = record.topic_id
        else:
            self.ended.add(record.key)

    def _remove_topic(self, name: str) -> None:
        self.topic_ids.pop(name, None)
        self.ended |= {f"config/{name}/{config}" for config in self.configs.pop(name, ())}
        self.ended |= {record.key for record in self.erases.pop(name, {}).values()}
        for topic_partition in self.partitions_by_topic.pop(name, ()):
            self.ended.add(self.partitions.pop(topic_partition).key)

    def _replay_config(self, record: ConfigRecord) -> None:
        if record.value is not None:
            self.configs.setdefault(record.topic, {})[record.name] = record.value
            self._config_changed(record.topic)
            return
        self._remove_config(record.topic, record.name)
        self.ended.add(record.key)

    def _remove_config(self, topic: str, name: str) -> None:
        overrides = self.configs.get(topic, {})
        overrides.pop(name, None)
        if not overrides:
            self.configs.pop(topic, None)
        self._config_changed(topic)

    def _config_changed(self, topic: str) -> None:
        if topic in (CLUSTER_WIDE, DYNAMIC_DEFAULT):
            known = {**self.configs.get(CLUSTER_WIDE, {}), **self.configs.get(DYNAMIC_DEFAULT, {})}
            defaults = defaults_by_topic_config(known)
            self.topic_defaults = {name: value for name, value in defaults.items() if not is_kafkas(name, value)}

    def _replay_access(self, record: AccessRecord) -> None:
        match record:
            case AccessControlEntryRecord():
                self.acls[record.id] = record
            case RemoveAccessControlEntryRecord():
                self.acls.pop(record.id, None)
                self.ended.add(record.key)
            case UserScramCredentialRecord():
                self.scram_credentials[record.name, record.mechanism] = record
            case RemoveUserScramCredentialRecord():
                self.scram_credentials.pop((record.name, record.mechanism), None)
                self.ended.add(record.key)

    def _replay_tombstone(self, key: str) -> None:
        """Only a fold of a compacted log meets one whose key is not over: compaction removed the record that ended it
        before this one."""
        self.topic_changes += 1
        kind, _, rest = key.partition("/")
        owner, _, name = rest.rpartition("/")  # the owner of a quota may have "/" in its name, a config's name has none
        match kind:
            case "topic":
                self._remove_topic(rest)
            case "partition":
                self._remove_partition(TopicPartition(owner, int(name)))
            case "config":
                self._remove_config(owner, name)
            case "erase":
                self._remove_erase(owner, int(name))
            case "deletion":
                self.deletions.pop(rest, None)
            case "acl":
                self.acls.pop(rest, None)
            case "scram":
                mechanism, _, user = rest.partition("/")
                self.scram_credentials.pop((user, mechanism), None)

    def _remove_partition(self, topic_partition: TopicPartition) -> None:
        self.partitions.pop(topic_partition, None)
        of_topic = self.partitions_by_topic.get(topic_partition.topic, set())
        of_topic.discard(topic_partition)
        if not of_topic:
            self.partitions_by_topic.pop(topic_partition.topic, None)

    def _remove_erase(self, topic: str, erase_id: int) -> None:
        of_topic = self.erases.get(topic, {})
        of_topic.pop(erase_id, None)
        if not of_topic:
            self.erases.pop(topic, None)

    def live_brokers(self) -> dict[int, BrokerState]:
        """Brokers that are registered and not fenced."""
        return {i: b for i, b in self.brokers.items() if not b.fenced}

    def is_current(self, broker_id: int, broker_epoch: int) -> bool:
        """True while `broker_epoch` is the live registration of the broker."""
        return self.is_live(broker_id) and self.brokers[broker_id].broker_epoch == broker_epoch

    def is_live(self, broker_id: int) -> bool:
        """True while the broker is registered and not fenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions in order; an empty list for an unknown topic."""
        return sorted(self.partitions_by_topic.get(topic, ()))

    def partition(self, topic_partition: TopicPartition) -> PartitionRecord:
        """The partition's state. UnknownTopicOrPartitionError, with the topic's number of partitions."""
        state = self.partitions.get(topic_partition)
        if state is None:
            known = len(self.partitions_of(topic_partition.topic))
            what = f"topic '{topic_partition.topic}' has {known} partitions" if known else "no such topic"
            raise UnknownTopicOrPartitionError(f"{topic_partition}: {what}")
        return state

    def identified(self, topic_partition: TopicPartition) -> IdentifiedPartition:
        """The partition as one of the topic that has this name now; the id of an unknown topic is empty."""
        return IdentifiedPartition(self.topic_ids.get(topic_partition.topic, ""), topic_partition)

    def state_of(self, named: IdentifiedPartition) -> PartitionRecord | None:
        """The state of a partition of the topic with this id; None where there is none, whatever has its name."""
        if self.topic_ids.get(named.topic) != named.topic_id:
            return None
        return self.partitions.get(named.topic_partition)

    def cluster_config(self, name: str, default: str) -> str:
        """A cluster-wide config: the altered value, else the one that the cluster was last started with."""
        started_with = self.configs.get(CLUSTER_WIDE, {}).get(name, default)
        return self.configs.get(DYNAMIC_DEFAULT, {}).get(name, started_with)

    def broker_config(self, broker_id: int, name: str, default: str) -> str:
        """A config of one broker: its own value, else that of the cluster."""
        own = self.configs.get(of_broker(broker_id), {}).get(name)
        return self.cluster_config(name, default) if own is None else own

    def topic_config(self, topic: str, broker_id: int | None = None) -> Mapping[str, str]:
        """A topic's configs by Kafka name: its overrides, and what brokers were given for all topics; a name that is
        missing has Kafka's default.

        broker_id  as that broker has them: what was altered for it alone comes before what all brokers have
        """
        own = {} if broker_id is None else self.configs.get(of_broker(broker_id), {})
        return {**self.topic_defaults, **defaults_by_topic_config(own), **self.topic_overrides(topic)}

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """The configs that were set for the topic itself, by Kafka name."""
        return self.configs.get(topic, {})


Response_co = TypeVar("Response_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Result(Generic[Response_co]):
    """A decision: the records to commit in one piece (none: nothing to do) and the answer for the caller."""

    records: tuple[MetadataRecord, ...]
    response: Response_co


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
    """StaleBrokerEpochError unless `broker_epoch` is the broker's live registration."""
    if image.is_current(broker_id, broker_epoch):
        return
    known = image.brokers.get(broker_id)
    if known is None:
        state = "is not registered"
    else:
        state = f"is {'fenced' if known.fenced else 'live'} at broker epoch {known.broker_epoch}"
    raise StaleBrokerEpochError(f"broker {broker_id} asked under broker epoch {broker_epoch}, but it {state}")
