"""Storage domains as decisions on the image: which there are. Pure.

A domain is removed only when nothing is in it. Its URL never changes: the tables would be elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from stratalog.replication.controller.domains.placements import BROKERS
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import (
    PartitionRecord,
    RemoveStorageDomainRecord,
    StorageDomainRecord,
    TopicDeletionRecord,
)
from stratalog.replication.metadata.storage_domains import COPIES_CONFIG, DOMAIN_CONFIG, domain_of
from stratalog.storage import errors

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,64}")


def add_storage_domain(
    image: ClusterImage, name: str, url: str, *, durable: bool, racks: Iterable[str] | None = None
) -> Result[StorageDomainRecord]:
    """Make a place known as a domain, say that it is durable, or which racks' brokers use it; the answer is the domain.

    racks  None: as before, at first any. Others are for replicas to come.

    Raises InvalidRequestError: an illegal name, another URL than the domain has, a place that is in, or contains, that
    of another domain or a broker's root.
    """
    known = image.storage_domains.get(name)
    before = () if known is None else known.racks
    wanted = StorageDomainRecord(name, url.rstrip("/"), durable, before if racks is None else tuple(sorted(set(racks))))
    if not _LEGAL_NAME.fullmatch(name) or name == BROKERS:
        raise errors.InvalidRequestError(
            f"'{name}' is no name of a storage domain: use 1 to 64 ASCII letters, digits, '.', '_' and '-', "
            f"but not {BROKERS}"
        )
    if known == wanted:
        return Result((), known)
    if known is not None and known.url != wanted.url:
        raise errors.InvalidRequestError(
            f"the storage domain '{name}' is {known.url}, not {wanted.url}: use another name for another place"
        )
    if known is not None and not durable and (inside := _inside(image, name)):
        raise errors.InvalidRequestError(f"the storage domain '{name}' has to be durable: {inside}")
    _check_is_apart(image, wanted)
    return Result((wanted,), wanted)


def remove_storage_domain(image: ClusterImage, name: str, *, is_lost: bool = False) -> Result[StorageDomainRecord]:
    """Forget a domain; the answer is what it was. Raises UnknownStorageDomainError, InvalidRequestError: something is
    in it, or topics are placed in it when they are made.

    is_lost  the place is gone for good: what partitions have left there, and deleted topics, is forgotten with it
    """
    known = domain_of(image, name)
    forgotten = tuple(_without(image, name)) if is_lost else ()
    if inside := _inside(image.fold(*forgotten), name):
        raise errors.InvalidRequestError(f"the storage domain '{name}' is in use: {inside}")
    return Result((*forgotten, RemoveStorageDomainRecord(name)), known)


def _without(image: ClusterImage, name: str) -> Iterator[PartitionRecord | TopicDeletionRecord]:
    """What only had to be deleted in this domain, without it."""
    for state in image.partitions.values():
        if name in state.left:
            changed = state.changed(controller_epoch=image.controller_epoch, bump_leader_epoch=False)
            yield replace(changed, left=tuple(each for each in state.left if each != name))
    for deletion in image.deletions.values():
        if name in deletion.domains:
            yield replace(deletion, domains=tuple(each for each in deletion.domains if each != name))


def _inside(image: ClusterImage, name: str) -> str:
    """What is in a domain, or is to be; "" for nothing."""
    if held := sum(name in state.domains for state in image.partitions.values()):
        return f"{held} partitions are in it"
    if deleted := [each.topic for each in image.deletions.values() if name in each.domains]:
        return f"the deleted topic {deleted[0]} still has tables in it"
    for owner, configs in sorted(image.configs.items()):
        copies = [each.strip() for each in configs.get(COPIES_CONFIG, "").split(",")]
        for config, named in ((DOMAIN_CONFIG, [configs.get(DOMAIN_CONFIG)]), (COPIES_CONFIG, copies)):
            if name in named:
                return f"{config} names it in the configs of {owner}"
    return ""


def _check_is_apart(image: ClusterImage, wanted: StorageDomainRecord) -> None:
    places = {f"the storage domain '{each.name}'": each.url for each in image.storage_domains.values()}
    places.pop(f"the storage domain '{wanted.name}'", None)
    places |= {f"the root of broker {i}": each.registration.root for i, each in image.brokers.items()}
    for what, url in places.items():
        check_apart(wanted.name, wanted.url, what, url)


def check_apart(name: str, url: str, what: str, other: str) -> None:
    """InvalidRequestError where the place of the domain `name` is another one's, in it, or around it."""
    other = other.rstrip("/")
    if f"{url}/".startswith(f"{other}/") or f"{other}/".startswith(f"{url}/"):
        raise errors.InvalidRequestError(
            f"the storage domain '{name}' cannot be {url}: {what} is {other}, and neither may be inside the other"
        )
