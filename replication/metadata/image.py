"""The image: the cluster folded from the records of `__cluster_metadata`. Pure.

An image never changes: `ClusterImage.fold` makes the next one, which shares with it what is the same. Decisions read
one and return a `Result`: new records and an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    RemoveStorageDomainRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    StorageDomainRecord,
    TombstoneRecord,
    TopicDeletionRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    of_broker,
)
from stratalog.storage.errors import StaleBrokerEpochError, UnknownTopicOrPartitionError
from stratalog.storage.layered_map import LayeredMap, MapDraft
from stratalog.storage.records import IdentifiedPartition, TopicPartition

K = TypeVar("K")
V = TypeVar("V")

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


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The cluster's state after a record of the metadata log. Any thread may read it, and keep it.

    partitions_by_topic  topic -> its partitions, as keys
    scram_credentials    by user and mechanism
    ended                keys of records that are in the log and mean nothing any more: tombstones let compaction remove
                         them
    topic_defaults       what the brokers of the cluster were given for all topics, by topic config: part of `configs`,
                         without those that are Kafka's
    topic_changes        another object whenever topics or partitions come or go: what was found of them holds while it
                         stays
    """

    cluster_id: str = ""
    controller_id: int = NO_LEADER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerState] = field(default_factory=LayeredMap)
    storage_domains: Mapping[str, StorageDomainRecord] = field(default_factory=LayeredMap)
    topic_ids: Mapping[str, str] = field(default_factory=LayeredMap)
    partitions: Mapping[TopicPartition, PartitionRecord] = field(default_factory=LayeredMap)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=LayeredMap)
    erases: Mapping[str, Mapping[int, EraseRecord]] = field(default_factory=LayeredMap)
    deletions: Mapping[str, TopicDeletionRecord] = field(default_factory=LayeredMap)
    partitions_by_topic: Mapping[str, Mapping[TopicPartition, bool]] = field(default_factory=LayeredMap)
    acls: Mapping[str, AccessControlEntryRecord] = field(default_factory=LayeredMap)
    scram_credentials: Mapping[tuple[str, str], UserScramCredentialRecord] = field(default_factory=LayeredMap)
    next_producer_id: int = 0
    last_broker_epoch: int = 0
    ended: Mapping[str, bool] = field(default_factory=LayeredMap)
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    topic_changes: object = field(default_factory=object, compare=False, repr=False)

    def fold(self, *records: MetadataRecord) -> ClusterImage:
        """The image after these records, too, oldest first."""
        fold = _Fold(self)
        for record in records:
            fold.replay(record)
        return fold.image()

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


class _Fold:
    """An image in the making. What a batch of records changes of a map is copied once."""

    def __init__(self, image: ClusterImage) -> None:
        self.cluster_id = image.cluster_id
        self.controller_id = image.controller_id
        self.controller_epoch = image.controller_epoch
        self.next_producer_id = image.next_producer_id
        self.last_broker_epoch = image.last_broker_epoch
        self.topic_defaults = image.topic_defaults
        self.topic_changes = image.topic_changes
        self.brokers = MapDraft(image.brokers)
        self.storage_domains = MapDraft(image.storage_domains)
        self.topic_ids = MapDraft(image.topic_ids)
        self.partitions = MapDraft(image.partitions)
        self.configs = MapDraft(image.configs)
        self.erases = MapDraft(image.erases)
        self.deletions = MapDraft(image.deletions)
        self.acls = MapDraft(image.acls)
        self.scram_credentials = MapDraft(image.scram_credentials)
        self.ended = MapDraft(image.ended)
        self._by_topic = MapDraft(image.partitions_by_topic)
        self._partitions_of: dict[str, MapDraft[TopicPartition, bool]] = {}

    def image(self) -> ClusterImage:
        for topic, draft in self._partitions_of.items():
            if draft.current:
                self._by_topic.put(topic, draft.done())
            else:
                self._by_topic.pop(topic)
        return ClusterImage(
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            brokers=self.brokers.done(),
            storage_domains=self.storage_domains.done(),
            topic_ids=self.topic_ids.done(),
            partitions=self.partitions.done(),
            configs=self.configs.done(),
            erases=self.erases.done(),
            deletions=self.deletions.done(),
            partitions_by_topic=self._by_topic.done(),
            acls=self.acls.done(),
            scram_credentials=self.scram_credentials.done(),
            next_producer_id=self.next_producer_id,
            last_broker_epoch=self.last_broker_epoch,
            ended=self.ended.done(),
            topic_defaults=self.topic_defaults,
            topic_changes=self.topic_changes,
        )

    def replay(self, record: MetadataRecord) -> None:
        self.ended.pop(record.key)
        match record:
            case PartitionRecord():
                self._replay_partition(record)
            case RegisterBrokerRecord() | FenceBrokerRecord() | UnregisterBrokerRecord():
                self._replay_broker(record)
            case ControllerRecord() | ClusterRecord() | ProducerIdsRecord():
                self._replay_cluster(record)
            case TopicRecord() | RemoveTopicRecord() | TopicDeletionRecord():
                self._replay_topic(record)
            case ConfigRecord():
                self._replay_config(record)
            case StorageDomainRecord():
                self.storage_domains.put(record.name, record)
            case RemoveStorageDomainRecord():
                self.storage_domains.pop(record.name)
                self._end(record.key)
            case EraseRecord():
                erases = self.erases.current.get(record.topic, {})
                self.erases.put(record.topic, {**erases, record.erase_id: record})
            case TombstoneRecord():
                self._replay_tombstone(record.key)
            case _:
                self._replay_access(record)

    def _end(self, key: str) -> None:
        self.ended.put(key, True)

    def _replay_partition(self, record: PartitionRecord) -> None:
        topic_partition = record.topic_partition
        if topic_partition not in self.partitions.current:
            self.topic_changes = object()
            self._of_topic(record.topic).put(topic_partition, True)
        self.partitions.put(topic_partition, record)

    def _of_topic(self, topic: str) -> MapDraft[TopicPartition, bool]:
        """The topic's partitions, in the making."""
        draft = self._partitions_of.get(topic)
        if draft is None:
            draft = self._partitions_of[topic] = MapDraft(self._by_topic.current.get(topic, {}))
        return draft

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
            self.brokers.put(record.broker_id, BrokerState(record))
            return
        if isinstance(record, UnregisterBrokerRecord):
            self.brokers.pop(record.broker_id)
            return
        known = self.brokers.current.get(record.broker_id)
        if known and known.broker_epoch == record.broker_epoch:
            self.brokers.put(record.broker_id, replace(known, fenced=True, clean_shutdown=record.clean))

    def _replay_topic(self, record: TopicRecord | RemoveTopicRecord | TopicDeletionRecord) -> None:
        if isinstance(record, TopicDeletionRecord):
            self.deletions.pop(record.topic_id)
            if record.brokers:
                self.deletions.put(record.topic_id, record)
            else:
                self._end(record.key)
            return
        self._remove_topic(record.name)  # before a new topic, too: compaction may have left parts of an older one
        self.topic_changes = object()
        if isinstance(record, TopicRecord):
            self.topic_ids.put(record.name, record.topic_id)
        else:
            self._end(record.key)

    def _remove_topic(self, name: str) -> None:
        self.topic_ids.pop(name)
        for config in self.configs.pop(name) or ():
            self._end(f"config/{name}/{config}")
        for erase in (self.erases.pop(name) or {}).values():
            self._end(erase.key)
        for topic_partition in self._of_topic(name).current:
            if (partition := self.partitions.pop(topic_partition)) is not None:
                self._end(partition.key)
        self._partitions_of[name] = MapDraft({})

    def _replay_config(self, record: ConfigRecord) -> None:
        if record.value is not None:
            overrides = self.configs.current.get(record.topic, {})
            self.configs.put(record.topic, {**overrides, record.name: record.value})
            self._config_changed(record.topic)
            return
        self._remove_config(record.topic, record.name)
        self._end(record.key)

    def _remove_config(self, topic: str, name: str) -> None:
        overrides = self.configs.current.get(topic, {})
        self._put_or_pop(self.configs, topic, {each: value for each, value in overrides.items() if each != name})
        self._config_changed(topic)

    @staticmethod
    def _put_or_pop(draft: MapDraft[str, Mapping[K, V]], topic: str, items: Mapping[K, V]) -> None:
        if items:
            draft.put(topic, items)
        else:
            draft.pop(topic)

    def _config_changed(self, topic: str) -> None:
        if topic in (CLUSTER_WIDE, DYNAMIC_DEFAULT):
            configs = self.configs.current
            known = {**configs.get(CLUSTER_WIDE, {}), **configs.get(DYNAMIC_DEFAULT, {})}
            defaults = defaults_by_topic_config(known)
            self.topic_defaults = {name: value for name, value in defaults.items() if not is_kafkas(name, value)}

    def _replay_access(self, record: AccessRecord) -> None:
        match record:
            case AccessControlEntryRecord():
                self.acls.put(record.id, record)
            case RemoveAccessControlEntryRecord():
                self.acls.pop(record.id)
                self._end(record.key)
            case UserScramCredentialRecord():
                self.scram_credentials.put((record.name, record.mechanism), record)
            case RemoveUserScramCredentialRecord():
                self.scram_credentials.pop((record.name, record.mechanism))
                self._end(record.key)

    def _replay_tombstone(self, key: str) -> None:
        """Only a fold of a compacted log meets one whose key is not over: compaction removed the record that ended it
        before this one."""
        self.topic_changes = object()
        kind, _, rest = key.partition("/")
        owner, _, name = rest.rpartition("/")  # the owner of a quota may have "/" in its name, a config's name has none
        match kind:
            case "topic":
                self._remove_topic(rest)
            case "partition":
                self.partitions.pop(TopicPartition(owner, int(name)))
                self._of_topic(owner).pop(TopicPartition(owner, int(name)))
            case "config":
                self._remove_config(owner, name)
            case "erase":
                erases = self.erases.current.get(owner, {})
                self._put_or_pop(self.erases, owner, {i: erase for i, erase in erases.items() if i != int(name)})
            case "deletion":
                self.deletions.pop(rest)
            case "domain":
                self.storage_domains.pop(rest)
            case "acl":
                self.acls.pop(rest)
            case "scram":
                mechanism, _, user = rest.partition("/")
                self.scram_credentials.pop((user, mechanism))


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
