"""`meta.properties`: a root belongs to one broker of one cluster, in a format that is known."""

from __future__ import annotations

import random

import pytest

from stratalog.replication.broker_root import META_PROPERTIES, check_meta_properties
from stratalog.storage.errors import (
    CorruptMessageError,
    InconsistentClusterIdError,
    InvalidRequestError,
    StratalogError,
    UnsupportedVersionError,
)
from stratalog.storage.objects.memory import MemoryStore
from tests.storage.power_cut_store import PowerCutStore


def test_a_new_root_is_marked_in_kafkas_format() -> None:
    store = MemoryStore()
    check_meta_properties(store, "cluster-a", 2, 1)
    assert store.get(META_PROPERTIES) == b"version=1\ncluster.id=cluster-a\nbroker.id=2\n"


def test_the_same_broker_comes_again() -> None:
    store = MemoryStore()
    check_meta_properties(store, "cluster-a", 2, 1)
    check_meta_properties(store, "cluster-a", 2, 1)
    check_meta_properties(store, "cluster-a", 2, 3)
    assert b"version=1" in store.get(META_PROPERTIES), "a newer release opens it and rewrites nothing"


@pytest.mark.parametrize(
    ("cluster_id", "broker_id", "format_version", "error", "words"),
    [
        ("cluster-b", 2, 1, InconsistentClusterIdError, "belongs to cluster cluster-a, this is cluster cluster-b"),
        ("cluster-a", 3, 1, InvalidRequestError, "belongs to broker 2, this is broker 3"),
        ("cluster-a", 2, 0, UnsupportedVersionError, "format 1, this release knows formats up to 0"),
    ],
)
def test_another_ones_root_is_refused(
    cluster_id: str, broker_id: int, format_version: int, error: type[StratalogError], words: str
) -> None:
    store = MemoryStore()
    check_meta_properties(store, "cluster-a", 2, 1)
    with pytest.raises(error, match=words):
        check_meta_properties(store, cluster_id, broker_id, format_version)


def test_comments_and_blank_lines_are_read_over_as_in_kafkas_file() -> None:
    store = MemoryStore({META_PROPERTIES: b"#Sat Oct 11 19:03:00 CST 2019\n\nbroker.id=2\nversion=1\ncluster.id=a=b\n"})
    check_meta_properties(store, "a=b", 2, 1)


@pytest.mark.parametrize("left", [b"", bytes(40), b"version=1\nclus", b"\xff\xfe\x00"])
def test_a_mark_that_a_power_cut_spoilt_is_written_again_unless_there_are_replicas(left: bytes) -> None:
    store = MemoryStore({META_PROPERTIES: left})
    check_meta_properties(store, "cluster-a", 2, 1)
    assert store.get(META_PROPERTIES) == b"version=1\ncluster.id=cluster-a\nbroker.id=2\n"
    used = MemoryStore({META_PROPERTIES: left, "orders-0/_delta_log/00000000000000000000.json": b"{}"})
    with pytest.raises(CorruptMessageError, match=r"is torn.*orders-0"):
        check_meta_properties(used, "cluster-a", 2, 1)


def test_the_mark_is_durable_before_anything_else_is_written() -> None:
    disk = PowerCutStore(random.Random(1))
    check_meta_properties(disk, "cluster-a", 2, 1)
    assert disk.disk == disk.objects
