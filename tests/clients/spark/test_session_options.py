"""Settings of a session as options of its readers and writers, without Spark's JVM."""

from __future__ import annotations

import pytest
from pyspark.cloudpickle import dumps, loads

from stratalog.clients.spark.registration import storage_settings
from stratalog.clients.spark.source.source import StratalogDataSource, source_of_session
from stratalog.storage.errors import InvalidConfigError

REGION, KEY = "stratalog.storage.aws.region", "stratalog.storage.aws.secret.access.key"


def test_a_readers_own_options_take_precedence_in_any_case() -> None:
    made = source_of_session({REGION: "eu-west-1", KEY: "hush"})({REGION.upper(): "us-east-2", "topic": "t"})
    assert made.options == {KEY: "hush", REGION.upper(): "us-east-2", "topic": "t"}


def test_the_class_carries_them_into_other_processes_and_its_name_does_not_show_them() -> None:
    cls = loads(dumps(source_of_session({KEY: "hush"})))
    assert issubclass(cls, StratalogDataSource)
    assert cls.name() == "stratalog"
    assert cls({}).options == {KEY: "hush"}
    assert "hush" not in repr(cls)


def test_without_settings_the_format_is_the_one_that_spark_finds_by_itself() -> None:
    assert source_of_session({}) is StratalogDataSource


def test_only_settings_of_stores_count_and_unknown_ones_are_refused_by_the_sessions_name() -> None:
    found = {"spark.stratalog.storage.aws.region": "eu-west-1", "spark.app.name": "a"}
    assert storage_settings(found).given == (("aws.region", "eu-west-1"),)
    with pytest.raises(InvalidConfigError, match=r"spark\.stratalog\.storage\.\*: .*did you mean aws\.region"):
        storage_settings({"spark.stratalog.storage.aws.regoin": "x"})
