"""One parser for all configs: Kafka's types, validators and error texts, synonyms, and the nearest known name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from stratalog.storage.config_def import (
    ConfigDef,
    ConfigKey,
    at_least,
    between,
    config_field,
    each_of,
    non_empty,
    one_of,
    spelled,
)
from stratalog.storage.errors import InvalidConfigError


@dataclass(frozen=True)
class Toaster:
    toast_ms: int = config_field("INT", 90_000, "ms", "how long", at_least(1))
    is_lit: bool = config_field("BOOLEAN", False)
    name: str = "no config"


TOASTER = ConfigDef.of("toaster", Toaster, {"toast.time": "toast.ms"})


def test_a_dataclass_declares_its_configs_in_order() -> None:
    assert [(key.name, key.field_name, key.default, key.unit) for key in TOASTER] == [
        ("toast.ms", "toast_ms", 90_000, "ms"),
        ("is.lit", "is_lit", False, ""),
    ]
    assert Toaster(**TOASTER.parse({"toast.ms": " 5 "})) == Toaster(5)


def test_of_two_names_of_one_config_the_later_counts() -> None:
    assert TOASTER.parse({"toast.ms": "5", "toast.time": "6"}) == {"toast_ms": 6}
    assert TOASTER.parse({"toast.time": "6", "toast.ms": "5"}) == {"toast_ms": 5}


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        TOASTER.parse({"toast.mss": 1})
    assert str(refusal.value) == "Unknown toaster config name: toast.mss (did you mean toast.ms?)"
    with pytest.raises(InvalidConfigError) as refusal:
        TOASTER.key("x")
    assert str(refusal.value) == "Unknown toaster config name: x"


@pytest.mark.parametrize(
    ("key", "value", "typed"),
    [
        (ConfigKey("k", "INT", 0), " +7 ", 7),
        (ConfigKey("k", "LONG", 0), 2**63, 2**63),
        (ConfigKey("k", "DOUBLE", 0.0, validator=between(0, 1)), "0.25", 0.25),
        (ConfigKey("k", "BOOLEAN", False), " TRUE", True),
        (ConfigKey("k", "BOOLEAN", False), False, False),
        (ConfigKey("k", "STRING", ""), " as it is ", " as it is "),
        (ConfigKey("k", "STRING", "", validator=non_empty), " word ", "word"),
        (ConfigKey("k", "STRING", "", validator=one_of("a", "b")), "b ", "b"),
        (ConfigKey("k", "LIST", ()), "a, b,a", ("a", "b", "a")),
        (ConfigKey("k", "LIST", (), validator=each_of("a", "b")), ["b", "a", "b"], ("b", "a")),
    ],
)
def test_a_value_is_parsed_by_its_type(key: ConfigKey, value: object, typed: object) -> None:
    assert key.parse(value) == typed


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (ConfigKey("k", "INT", 0), "seven", "Not a number of type INT"),
        (ConfigKey("k", "INT", 0), True, "Not a number of type INT"),
        (ConfigKey("k", "INT", 0), 1.5, "Not a number of type INT"),
        (ConfigKey("k", "INT", 0), [6], "Expected one value of type INT, not a list"),
        (ConfigKey("k", "BOOLEAN", False), (True,), "Expected one value of type BOOLEAN, not a list"),
        (ConfigKey("k", "LONG", 0), "1_000", "Not a number of type LONG"),
        (ConfigKey("k", "LONG", 0), "", "Not a number of type LONG"),
        (ConfigKey("k", "DOUBLE", 0.0), "half", "Not a number of type DOUBLE"),
        (ConfigKey("k", "DOUBLE", 0.0, validator=between(0, 1)), "nan", "Value must be at least 0"),
        (ConfigKey("k", "DOUBLE", 0.0, validator=between(0, 1)), "1.5", "Value must be no more than 1"),
        (ConfigKey("k", "BOOLEAN", False), 1, "Expected value to be either true or false"),
        (ConfigKey("k", "STRING", ""), 7, "Expected value to be a string"),
        (ConfigKey("k", "STRING", "", validator=non_empty), " ", "String must be non-empty"),
        (ConfigKey("k", "LIST", (), validator=each_of("a", "b")), "a,c", "String must be one of: a, b"),
        (ConfigKey("k", "LIST", (), validator=each_of("a", "b")), "a,", "String must be one of: a, b"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_as_it_was_given(key: ConfigKey, value: object, reason: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        key.parse(value)
    assert str(refusal.value) == f"Invalid value {value} for configuration k: {reason}"


def test_a_value_is_spelled_as_kafka_does() -> None:
    assert [spelled(value) for value in (True, 7, 0.5, ("a", "b"), ["c"], "d")] == ["true", "7", "0.5", "a,b", "c", "d"]
