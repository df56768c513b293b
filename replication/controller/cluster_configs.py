"""Cluster-wide configs and what depends on them: defaults of topics, eligible leaders. Pure.

Defaults of topics' configs are in the metadata log (`metadata.configs`). A lower default of `min.insync.replicas` ends
the eligibility of replicas outside the ISR, as a topic's own value does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.election.eligible_leaders import MIN_ISR_CONFIG, end_eligibility, min_isr_of
from stratalog.replication.metadata.configs import Replaced, alter_cluster_config, record_cluster_wide_configs
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import MetadataRecord, PartitionRecord


def start_cluster_configs(
    image: ClusterImage, config: BrokerConfig, topic_defaults: Mapping[str, object] | None = None
) -> Result[list[Replaced]]:
    """`record_cluster_wide_configs`, with what follows for eligible leaders."""
    result = record_cluster_wide_configs(image, config, topic_defaults)
    return Result((*result.records, *_eligibility_ended(image, result.records)), result.response)


def alter_cluster_configs(
    image: ClusterImage, changes: Mapping[str, str | None], *, keeps_unknown: bool = False
) -> Result[dict[str, str]]:
    """`alter_cluster_config`, with what follows for eligible leaders."""
    result = alter_cluster_config(image, changes, keeps_unknown=keeps_unknown)
    return Result((*result.records, *_eligibility_ended(image, result.records)), result.response)


def _eligibility_ended(image: ClusterImage, records: Iterable[MetadataRecord]) -> Iterable[PartitionRecord]:
    """The partitions without ELR of the topics for which these records lower `min.insync.replicas`."""
    changed = list(records)
    if not changed:
        return
    after = image.fold(*changed)
    if min_isr_of(after.topic_defaults) >= min_isr_of(image.topic_defaults):
        return
    for topic in image.topic_ids:
        if MIN_ISR_CONFIG not in image.topic_overrides(topic):
            yield from end_eligibility(image, topic)
