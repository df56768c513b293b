"""Replicas in storage domains that this broker reported as out of its reach, and their return.

I/O: small objects in such a domain, put as a data file and created as a commit, in a thread of its own: the domain may
answer nothing. They are in the folder of the topic that was reported last, since a bucket may refuse a part of it. Once
they are there, `report_online` makes the replicas members of their ISRs again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from stratalog.replication import cadence
from stratalog.replication.broker.loop_state import LoopState
from stratalog.replication.broker.registration import Registration
from stratalog.replication.controller.brokers import report_online
from stratalog.replication.folders import topic_folder
from stratalog.replication.metadata.domain_claim import check_claim
from stratalog.replication.metadata.records import MetadataRecord, PartitionRecord
from stratalog.storage.cadence import BackOff
from stratalog.storage.errors import StaleBrokerEpochError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.probe import PROBE, probe_create_if_absent
from stratalog.storage.records import TopicPartition

_LOG = line_logger("stratalog.broker")


@dataclass(slots=True)
class _Tries:
    """Of one domain, since the last report or before.

    is_away      whether replicas there wait for their return
    is_reached   the outcome of the last try; None: there was none. Another thread sets it, then `is_under_way`
    returned_ms  when they last returned
    """

    pauses: BackOff = cadence.DOMAIN_RETRY
    is_away: bool = False
    is_reached: bool | None = None
    is_under_way: bool = False
    returned_ms: int | None = None


class DomainReturns:
    """`follow_metadata` folds what was proposed."""

    def __init__(self, loop: LoopState, registration: Registration, follow_metadata: Callable[[int], None]) -> None:
        self._loop = loop
        self._registration = registration
        self._follow_metadata = follow_metadata
        self._away: dict[TopicPartition, str] = {}
        """The replicas here that are offline by the metadata, with their domains: none when the broker registers."""
        self._tries: dict[str, _Tries] = {}

    def metadata_changed(self, changed: Collection[MetadataRecord]) -> None:
        """These records were folded."""
        for record in changed:
            if not isinstance(record, PartitionRecord):
                continue
            if self._loop.broker_id in record.offline:
                self._away[record.topic_partition] = record.domain_of(self._loop.broker_id)
            else:
                self._away.pop(record.topic_partition, None)

    def step(self, now_ms: int) -> None:
        """Report the replicas of each domain that this broker reaches again: it has answered a try, or a leader that
        nobody could replace has stored something. Try the other domains when it is time. Raises StoreError."""
        waiting: dict[str, list[TopicPartition]] = {}
        for topic_partition, domain in self._away.items():
            if topic_partition not in self._loop.hosted.offline:  # else it leads, and tries on
                waiting.setdefault(domain, []).append(topic_partition)
        for domain in self._tries.keys() - waiting.keys():
            self._tries[domain].is_away = False
        for domain, away in waiting.items():
            tries = self._tries.setdefault(domain, _Tries())
            if self._leads_again(away) or self._is_reached(domain, away[-1], tries, now_ms):
                self._report(domain, away, now_ms)
                tries.is_away, tries.returned_ms = False, now_ms

    def _leads_again(self, topic_partitions: Collection[TopicPartition]) -> bool:
        leaders = self._loop.leaders
        return any(tp in leaders and leaders[tp].partition is not None for tp in topic_partitions)

    def _report(self, domain: str, away: Collection[TopicPartition], now_ms: int) -> None:
        loop, broker_epoch = self._loop, self._registration.broker_epoch
        image = loop.metadata.image
        named = [image.identified(tp) for tp in away if tp in image.partitions]
        _LOG.info("broker %d reaches the storage domain '%s' again: %d replicas", loop.broker_id, domain, len(named))
        try:
            loop.metadata.propose(lambda image: report_online(image, loop.broker_id, broker_epoch, named))
        except StaleBrokerEpochError as reason:
            _LOG.info("broker %d: %s", loop.broker_id, reason)  # its next registration has none offline
        for topic_partition in away:
            self._away.pop(topic_partition, None)
        self._follow_metadata(now_ms)

    def _is_reached(self, domain: str, last: TopicPartition, tries: _Tries, now_ms: int) -> bool:
        """Whether the domain has answered a try; one begins when it is due, unless one is under way."""
        if tries.is_under_way:
            return False
        if not tries.is_away:
            is_first = tries.returned_ms is None or now_ms - tries.returned_ms > cadence.DOMAIN_SOUND.ms
            tries.pauses = (cadence.DOMAIN_RETRY if is_first else tries.pauses).failed(now_ms)
            tries.is_away, tries.is_reached = True, None
        elif tries.is_reached is False:
            tries.pauses, tries.is_reached = tries.pauses.failed(now_ms), None
        if tries.is_reached is None and tries.pauses.is_due(now_ms):
            tries.is_under_way = True
            threads = self._loop.hosted.tables.ports.threads
            folder = topic_folder(last.topic, self._loop.metadata.image.topic_ids.get(last.topic, ""))
            if threads is None:
                self._try(domain, folder, tries)
            else:
                threads.start(f"domain-probe-{self._loop.broker_id}", lambda: self._try(domain, folder, tries))
        return tries.is_reached is True

    def _try(self, domain: str, folder: str, tries: _Tries) -> None:
        """Whether the domain is there, takes objects in this folder, creates one only once, and returns it."""
        ports = self._loop.hosted.tables.ports
        try:
            image = self._loop.metadata.image
            store, probe_id = ports.stores.objects(image.storage_domains[domain].url), ports.ids.new_id()
            check_claim(store, image.cluster_id, domain)
            probe_create_if_absent(store, probe_id, "creates of absent objects", f"{folder}/")
            store.put(f"{folder}/{PROBE}-{probe_id}", b"")
            store.delete(f"{folder}/{PROBE}-{probe_id}")
            tries.is_reached = True
        except (StratalogError, KeyError) as reason:
            _LOG.info("broker %d cannot reach the storage domain '%s': %s", self._loop.broker_id, domain, reason)
            tries.is_reached = False
        finally:
            tries.is_under_way = False
