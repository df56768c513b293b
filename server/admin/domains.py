"""Storage domains: a place is tried, claimed for the cluster, and made known to its metadata.

I/O: the place's store and the metadata log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.replication.controller.domains.promotions import Promotion, promote_storage_domain
from stratalog.replication.controller.domains.storage_domains import (
    add_storage_domain,
    check_apart,
    remove_storage_domain,
)
from stratalog.replication.metadata.domain_claim import claim_domain, end_claim
from stratalog.replication.metadata.records import StorageDomainRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.store_settings import FROM_ENVIRONMENT, StoreSettings
from stratalog.storage.topic_config import LogConfig


@dataclass(frozen=True, slots=True)
class StorageDomainDescription:
    """A domain: its place, whether it is durable, and what is in it."""

    name: str
    url: str
    durable: bool
    topics: tuple[str, ...]
    partitions: int
    racks: tuple[str, ...] = ()


def add_domain(
    view: ClusterView,
    name: str,
    url: str,
    *,
    durable: bool | None = None,
    racks: Sequence[str] | None = None,
    settings: StoreSettings = FROM_ENVIRONMENT,
) -> StorageDomainDescription:
    """See `Admin.add_storage_domain`."""
    store = open_store(url, create=True, settings=settings)
    is_durable = store.durable_on_answer if durable is None else durable
    view.refresh()
    check_apart(name, store.url, "the metadata root", view.stores.objects(view.root).url)
    add_storage_domain(view.image, name, store.url, durable=is_durable, racks=racks)
    claim_domain(store, view.image.cluster_id, name)
    view.propose(lambda image: add_storage_domain(image, name, store.url, durable=is_durable, racks=racks))
    return next(each for each in describe_domains(view) if each.name == name)


def remove_domain(view: ClusterView, name: str, *, is_lost: bool = False) -> StorageDomainRecord:
    """See `Admin.remove_storage_domain`."""
    removed = view.propose(lambda image: remove_storage_domain(image, name, is_lost=is_lost))
    if not is_lost:
        end_claim(open_store(removed.url))
    return removed


def promote_domain(view: ClusterView, name: str, *, leave: Sequence[str] = (), unclean: bool = False) -> Promotion:
    """See `Admin.promote_storage_domain`."""
    check = LogConfig.validated
    return view.propose(
        lambda image: promote_storage_domain(image, name, leave=leave, unclean=unclean, check_configs=check)
    )


def describe_domains(view: ClusterView) -> list[StorageDomainDescription]:
    """See `Admin.describe_storage_domains`."""
    view.refresh()
    found: list[StorageDomainDescription] = []
    for name, domain in sorted(view.image.storage_domains.items()):
        held = [state for state in view.image.partitions.values() if name in state.domains]
        topics = tuple(sorted({state.topic for state in held}))
        found.append(StorageDomainDescription(name, domain.url, domain.durable, topics, len(held), domain.racks))
    return found
