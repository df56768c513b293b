"""Storage domains as decisions on the image: which there are, and where a topic is placed. Pure.

A domain is removed only when nothing is in it. Its URL never changes: the tables would be elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import RemoveStorageDomainRecord, StorageDomainRecord
from stratalog.replication.metadata.storage_domains import DOMAIN_CONFIG, domain_of
from stratalog.storage import errors

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,64}")


def add_storage_domain(image: ClusterImage, name: str, url: str, *, durable: bool) -> Result[StorageDomainRecord]:
    """Make a place known as a domain, or say that it is durable; the answer is the domain.

    Raises InvalidRequestError: an illegal name, another URL than the domain has, a place that is in, or contains, that
    of another domain or a broker's root.
    """
    wanted = StorageDomainRecord(name, url.rstrip("/"), durable)
    if not _LEGAL_NAME.fullmatch(name):
        raise errors.InvalidRequestError(
            f"'{name}' is no name of a storage domain: use 1 to 64 ASCII letters, digits, '.', '_' and '-'"
        )
    known = image.storage_domains.get(name)
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


def remove_storage_domain(image: ClusterImage, name: str) -> Result[StorageDomainRecord]:
    """Forget a domain; the answer is what it was. Raises UnknownStorageDomainError, InvalidRequestError: something is
    in it, or topics are placed in it when they are made."""
    known = domain_of(image, name)
    if inside := _inside(image, name):
        raise errors.InvalidRequestError(f"the storage domain '{name}' is in use: {inside}")
    return Result((RemoveStorageDomainRecord(name),), known)


def placed_in(image: ClusterImage, configs: Mapping[str, str]) -> str:
    """The domain in which a topic with these configs is made; "" for none. Raises UnknownStorageDomainError,
    InvalidConfigError for one that is not durable."""
    name = configs.get(DOMAIN_CONFIG, "")
    if name and not domain_of(image, name).durable:
        raise errors.InvalidConfigError(
            f"{DOMAIN_CONFIG} is {name}, which is not durable: a partition has one copy there. Say that it is "
            "(strata metadata domains --add --durable) where the place itself keeps several, or set it to ''"
        )
    return name


def check_not_moved(
    image: ClusterImage, topic: str, changes: Mapping[str, str | None], after: Mapping[str, str]
) -> None:
    """Raises InvalidConfigError where changed configs place a topic elsewhere than its partitions are."""
    if DOMAIN_CONFIG not in changes:
        return
    wanted = after.get(DOMAIN_CONFIG, "")
    found = {image.partitions[each].domain for each in image.partitions_of(topic)}
    if found - {wanted}:
        there = " and ".join(f"'{each}'" for each in sorted(found))
        raise errors.InvalidConfigError(
            f"{DOMAIN_CONFIG} of topic {topic} cannot become '{wanted}': its partitions are in {there}, "
            "and a config moves none"
        )


def _inside(image: ClusterImage, name: str) -> str:
    """What is in a domain, or is to be; "" for nothing."""
    if held := sum(state.domain == name for state in image.partitions.values()):
        return f"{held} partitions are in it"
    if deleted := [each.topic for each in image.deletions.values() if name in each.domains]:
        return f"the deleted topic {deleted[0]} still has tables in it"
    placing = sorted(owner for owner, configs in image.configs.items() if configs.get(DOMAIN_CONFIG) == name)
    return f"{DOMAIN_CONFIG} names it in the configs of {placing[0]}" if placing else ""


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
