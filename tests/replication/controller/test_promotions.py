"""A storage domain with copies becomes the home of the topics that it has a copy of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.controller.domains.promotions import promote_storage_domain
from stratalog.replication.controller.domains.storage_domains import add_storage_domain
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.storage.errors import (
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    UnknownStorageDomainError,
)
from stratalog.storage.topic_config import LogConfig
from tests.replication.images import TOPIC, GrowingImage, commit, image_of, partition, state


def image_with(isr: tuple[int, ...], leader: int, dead: tuple[int, ...] = ()) -> GrowingImage:
    """1 and 2 in the lake lead, 3 has the copy in the sea."""
    both = replace(partition((1, 2, 3), leader, isr), domain="lake", elsewhere=((3, "sea"),))
    image = image_of((1, 2, 3), both, fenced=dict.fromkeys(dead, False))
    for name in ("lake", "sea"):
        commit(image, add_storage_domain(image, name, f"s3://{name}/logs", durable=True))
    return image


def promoted(image: GrowingImage, *leave: str, unclean: bool = False) -> PartitionRecord:
    check = LogConfig.validated
    commit(image, promote_storage_domain(image, "sea", leave=leave, unclean=unclean, check_configs=check))
    return state(image)


def test_a_copy_in_the_isr_is_to_lead_and_the_old_home_is_a_copy() -> None:
    image = image_with((1, 2, 3), 1)
    assert promoted(image).target == ((3, "sea"), (1, "lake"), (2, "lake"))
    assert image.topic_overrides(TOPIC) == {"stratalog.storage.domain": "sea", "stratalog.storage.copies": "lake"}
    assert promoted(image_with((1, 2, 3), 1), "lake").target == ((3, "sea"),)


def test_a_copy_that_is_behind_is_waited_for_while_the_old_home_leads() -> None:
    image = image_with((1, 2), 1)
    check = LogConfig.validated
    result = promote_storage_domain(image, "sea", unclean=True, check_configs=check).response
    assert ([tp.partition for tp in result.waiting], result.unclean) == ([0], ())


def test_a_copy_that_is_behind_leads_only_if_that_is_wanted() -> None:
    image = image_with((1, 2), NO_LEADER, dead=(1, 2))
    with pytest.raises(EligibleLeadersNotAvailableError, match="is not in sync"):
        promoted(image)
    found = promoted(image, "lake", unclean=True)
    assert (found.leader, found.isr, found.unclean, found.target) == (3, (3,), 1, ((3, "sea"),))


def test_what_cannot_be_promoted_is_refused() -> None:
    image = image_of((1,), partition((1,), 1, (1,)))
    with pytest.raises(UnknownStorageDomainError):
        promoted(image)
    commit(image, add_storage_domain(image, "sea", "s3://sea/logs", durable=True))
    with pytest.raises(InvalidRequestError, match="no topic has a copy in the storage domain 'sea'"):
        promoted(image)
