"""Values of a topic as typed columns by a registry's schemas, and back, in Python workers of Spark's."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from stratalog import Schema, SchemaRegistryClient, SchemaType, from_registry, registry_header, to_registry
from stratalog.clients.schemas.errors import SubjectNotFoundError
from stratalog.storage.errors import InvalidConfigError
from tests.clients.schemas.registry_server import StateServer
from tests.clients.schemas.test_columns import shop_schema

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "item", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
COUNTED = json.dumps(
    {"type": "record", "name": "Order", "fields": [*FIELDS, {"name": "count", "type": "int", "default": 1}]}
)
AT = dt.datetime(2026, 11, 25, 21, 5, tzinfo=dt.UTC)
JSON_ORDER = Schema(
    '{"type":"object","properties":{"id":{"type":"integer"},"item":{"type":"string"}}}', SchemaType.JSON
)


@pytest.fixture
def registry() -> Iterator[SchemaRegistryClient]:
    with StateServer() as server:
        yield SchemaRegistryClient({"url": server.url})


def orders(spark: SparkSession) -> DataFrame:
    """Four orders, as a struct column, with their offsets."""
    item = sf.when(sf.col("id") % 2 == 1, sf.concat(sf.lit("i"), sf.col("id")))
    order = sf.struct("id", item.alias("item"), sf.lit(AT).alias("at"))
    return spark.range(4).select(sf.col("id").alias("offset"), order.alias("order"))


def test_avro_of_several_versions_is_one_column(spark: SparkSession, registry: SchemaRegistryClient) -> None:
    written = orders(spark).select("offset", to_registry("order", registry, "orders-value", ORDER).alias("value"))
    bad = written.withColumn("value", sf.when(sf.col("offset") == 2, sf.lit(b"x")).otherwise(sf.col("value")))
    registry.register("orders-value", Schema(COUNTED))
    read = bad.select("offset", from_registry("value", registry, "orders-value").alias("read"))
    rows = read.select("offset", "read.*").orderBy("offset").collect()
    assert [row.value and (row.value.id, row.value.item, row.value["count"]) for row in rows] == [
        (0, None, 1),
        (1, "i1", 1),
        None,
        (3, "i3", 1),
    ]
    assert rows[0].value.at.astimezone(dt.UTC) == AT
    assert [row.schema_id for row in rows] == [1, 1, None, 1]
    assert [row.error and row.error[:32] for row in rows] == [None, None, "not in Confluent's wire format: ", None]

    place = (sf.lit("orders"), sf.lit(0), "offset")
    strict = bad.select(from_registry("value", registry, "orders-value", mode="FAILFAST", position=place))
    with pytest.raises(PythonException, match="orders-0 offset 2: not in Confluent's wire format"):
        strict.collect()


def test_json_and_protobuf_come_back_as_they_were(spark: SparkSession, registry: SchemaRegistryClient) -> None:
    frame = orders(spark).select("order.id", "order.item")
    number = sf.struct(sf.col("id").cast("int").alias("id"))
    both = frame.select(
        to_registry(sf.struct("id", "item"), registry, "j-value", JSON_ORDER).alias("json"),
        to_registry(number, registry, "p-value", shop_schema(), message="shop.Other").alias("protobuf"),
    )
    read = both.select(
        from_registry("json", registry, "j-value").alias("j"),
        from_registry("protobuf", registry, "p-value", message="shop.Other").alias("p"),
    ).select("j.value.id", "j.value.item", sf.col("p.value.id").alias("number"), "j.error", "p.error")
    assert sorted(map(tuple, read.collect())) == [(n, f"i{n}" if n % 2 else None, n, None, None) for n in range(4)]


def test_ids_may_be_in_headers(spark: SparkSession, registry: SchemaRegistryClient) -> None:
    values = to_registry("order", registry, "orders-value", ORDER, id_in="header")
    header = registry_header(registry, "orders-value", ORDER)
    written = orders(spark).select("offset", values.alias("value"), sf.array(header).alias("headers"))
    first = written.orderBy("offset").first()
    assert first is not None
    assert bytes(first.value[:1]) == b"\0", "the payload alone: id 0"
    assert first.headers[0].key == "__value_schema_id"
    read = written.select(from_registry("value", registry, "orders-value", headers="headers").alias("read"))
    assert sorted(row.id for row in read.select("read.value.id").collect()) == [0, 1, 2, 3]


def test_what_is_wrong_is_said_before_the_query_runs(spark: SparkSession, registry: SchemaRegistryClient) -> None:
    with pytest.raises(SubjectNotFoundError):
        from_registry("value", registry, "nothing-value")
    with pytest.raises(InvalidConfigError, match="mode LENIENT is not one of PERMISSIVE, FAILFAST"):
        from_registry("value", registry, Schema(ORDER), mode="LENIENT")
    with pytest.raises(InvalidConfigError, match="id_in suffix is not one of prefix, header"):
        to_registry("value", registry, "orders-value", ORDER, id_in="suffix")
