"""A registry in a topic: registrations of several at a time, after restarts, and read from storage alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.schemas import errors
from stratalog.clients.schemas.registry_state import RegistryState
from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaReference
from stratalog.clients.schemas.schema_folder import SchemaFolder
from stratalog.server.cluster import Cluster
from stratalog.storage.errors import StratalogError, UnknownTopicOrPartitionError

SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("schemas")
    with Cluster.start(folder / "cluster", brokers=1, fetcher="thread", config=SETTINGS) as running:
        yield running


def schema(*names: str) -> Schema:
    fields = [{"name": name, "type": ["null", "long"], "default": None} for name in names]
    return Schema(json.dumps({"type": "record", "name": "R", "fields": fields}, separators=(",", ":")))


def test_a_schema_is_found_by_all_its_names(cluster: Cluster) -> None:
    with SchemaFolder.create(cluster, "names") as folder, SchemaFolder(cluster.root, "names") as reader:
        first = folder.register("orders-value", schema("a"))
        assert (first.id, first.version) == (1, 1)
        assert folder.register("orders-value", schema("a")) == first
        assert folder.register("others-value", schema("a")).id == 1
        second = folder.register("orders-value", schema("a", "b"))
        for each in (folder, reader):
            assert each.version("orders-value") == second
            assert each.version("orders-value", 1) == first
            assert each.lookup("orders-value", schema("a")) == first
            assert each.schema_by_id(2).schema == schema("a", "b")
            assert first.guid is not None
            assert each.schema_by_guid(first.guid).id == 1
            assert each.versions("orders-value") == [1, 2]
            assert sorted(each.subjects()) == ["orders-value", "others-value"]
        with pytest.raises(errors.SchemaNotFoundError):
            reader.schema_by_id(3)


def test_levels_references_and_deletions_are_kept(cluster: Cluster) -> None:
    with SchemaFolder.create(cluster, "levels") as folder:
        folder.set_compatibility("FULL")
        folder.set_compatibility("NONE", "free")
        folder.register("r", schema("a"))
        folder.register("list", Schema('{"type":"array","items":"R"}', references=(SchemaReference("R", "r", 1),)))
        with pytest.raises(errors.IncompatibleSchemaError):
            folder.register("r", Schema('"string"'))
        assert folder.incompatibilities("r", Schema('"string"')) != []
        folder.register("free", schema("a"))
        folder.register("free", Schema('"string"'))
        with pytest.raises(errors.ReferenceExistsError):
            folder.delete_subject("r")
        assert folder.delete_version("free", 1) == 1
        assert folder.delete_subject("list") == [1]
    with SchemaFolder.create(cluster, "levels") as again:
        assert [again.compatibility(), again.compatibility("free")] == ["FULL", "NONE"]
        assert sorted(again.subjects()) == ["free", "r"]
        again.delete_compatibility("free")
        assert again.compatibility("free") == "FULL"


def test_registrations_at_the_same_time_end_with_one_id_for_a_schema(cluster: Cluster) -> None:
    SchemaFolder.create(cluster, "races").close()
    found: list[list[RegisteredSchema]] = []
    failed: list[StratalogError] = []
    start = threading.Barrier(3)

    def run(number: int) -> None:
        with SchemaFolder(cluster, "races") as folder:
            start.wait()
            try:
                names = [("same", "a"), ("same", "b"), (f"own-{number}", f"c{number}")]
                found.append([folder.register(subject, schema(name)) for subject, name in names])
            except StratalogError as reason:
                failed.append(reason)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []
    registered = [each for several in found for each in several]
    by_place = {(each.subject, each.version): each for each in registered}
    ids = {each.schema.text: each.id for each in by_place.values()}
    assert len(ids) == len(set(ids.values())) == 5
    for each in registered:
        assert by_place[each.subject, each.version] == each
    with SchemaFolder(cluster, "races") as folder:
        assert folder.versions("same") == [1, 2]
        assert {folder.schema_by_id(number).schema.text for number in range(1, 6)} == ids.keys()


def test_no_record_of_a_number_given_twice_is_in_the_topic(cluster: Cluster) -> None:
    """After the races above: each (subject, version) and each id stands for one schema in the whole log."""
    schemas: dict[object, set[str]] = {}
    with Consumer(cluster, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([("races", 0)])
        end = consumer.end_offsets(consumer.assignment())
        while any(consumer.position(each) < offset for each, offset in end.items()):
            for record in consumer.poll(100):
                value = json.loads(record.value or b"{}")
                schemas.setdefault(record.key, set()).add(value["schema"])
                schemas.setdefault(value["id"], set()).add(value["schema"])
    assert len(schemas) == 10
    assert all(len(each) == 1 for each in schemas.values())


def test_what_a_process_left_that_died_within_a_registration_does_not_count(cluster: Cluster) -> None:
    with (
        SchemaFolder.create(cluster, "died") as folder,
        Producer(cluster, transactional_id="stratalog-schemas-died") as dead,
    ):
        dead.init_transactions()
        dead.begin_transaction()
        [left] = RegistryState().register("s", schema("left")).records
        dead.send("died", left.value, left.key).result(10)
        found = folder.register("s", schema("other"))
        assert (found.id, found.version) == (1, 1)
        with pytest.raises(StratalogError):
            dead.commit_transaction()
        with SchemaFolder(cluster, "died") as again:
            assert again.schema_by_id(1).schema == schema("other")
            assert again.versions("s") == [1]


def test_a_process_that_knows_only_the_place_registers_through_the_inbox(cluster: Cluster) -> None:
    SchemaFolder.create(cluster, "place").close()
    with SchemaFolder(cluster.root, "place") as folder, SchemaFolder(cluster, "place") as inside:
        assert folder.register("s", schema("a")).id == 1
        assert inside.register("s", schema("a", "b")).version == 2
        assert folder.register("s", schema("a", "b")).version == 2


def test_a_topic_that_is_not_there_is_named_with_what_makes_it(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"SchemaFolder\.create"):
        SchemaFolder(cluster, "nowhere")
