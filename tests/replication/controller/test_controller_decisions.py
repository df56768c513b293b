"""One candidate wins a controller epoch (promise 12), and no producer id is given out twice."""

from __future__ import annotations

import pytest

from stratalog.replication.controller.producer_id_blocks import allocate_producer_ids
from stratalog.replication.metadata.log import elect_controller
from stratalog.replication.metadata.records import ControllerRecord
from stratalog.storage.errors import StaleBrokerEpochError, StaleControllerEpochError
from tests.replication.images import CONTROLLER_EPOCH, commit, image_of

NEXT = CONTROLLER_EPOCH + 1


def test_the_first_candidate_wins_and_the_second_is_refused() -> None:
    image = image_of([1, 2, 3])
    first = elect_controller(image, 2, NEXT)
    assert first.records == (ControllerRecord(2, NEXT),)
    assert commit(image, first) == NEXT
    with pytest.raises(StaleControllerEpochError, match=f"broker 2 is the controller of epoch {NEXT}"):
        elect_controller(image, 3, NEXT)


def test_a_winner_that_missed_the_answer_is_answered_again() -> None:
    image = image_of([1, 2])
    commit(image, elect_controller(image, 2, NEXT))
    again = elect_controller(image, 2, NEXT)
    assert (again.records, again.response) == ((), NEXT)


def test_producer_id_blocks_do_not_overlap() -> None:
    image = image_of([1, 2])
    blocks = [commit(image, allocate_producer_ids(image, *who)) for who in ((), (1, 11), (2, 12), (-1, None))]
    assert [(b.start, b.stop) for b in blocks] == [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000)]


@pytest.mark.parametrize(("broker_id", "broker_epoch"), [(1, 10), (1, 12), (2, 12), (9, 1)])
def test_a_broker_that_is_not_current_gets_no_producer_ids(broker_id: int, broker_epoch: int) -> None:
    with pytest.raises(StaleBrokerEpochError):
        allocate_producer_ids(image_of([1, 2], fenced={2: False}), broker_id, broker_epoch)
