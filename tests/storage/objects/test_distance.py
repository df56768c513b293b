"""How far a store is: each states it once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.storage.objects.distance import FAR, NEAR, Distance, farthest
from stratalog.storage.objects.opened import open_store


def test_a_directory_is_near_and_a_service_far(tmp_path: Path) -> None:
    assert open_store(str(tmp_path)).distance is NEAR
    assert open_store("s3://bucket/logs").distance is FAR


@pytest.mark.parametrize(("distance", "is_far"), [(NEAR, False), (FAR, True)])
def test_only_calls_to_a_far_store_are_made_side_by_side(distance: Distance, is_far: bool) -> None:
    assert (distance.is_far, distance.calls_max > 1) == (is_far, is_far)


@pytest.mark.parametrize(("stores", "whole"), [([], NEAR), ([NEAR, NEAR], NEAR), ([NEAR, FAR, NEAR], FAR)])
def test_work_is_as_far_as_its_farthest_store(stores: list[Distance], whole: Distance) -> None:
    assert farthest(stores) is whole
