"""The properties of a broker process: its identity beside the settings of its cluster; when a refusal is final."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratalog.replication.config import CONF_DIR, BrokerConfig, flatten_toml
from stratalog.server.process.broker_properties import IDENTITY, BrokerProperties
from stratalog.server.process.running_broker import is_final
from stratalog.storage.errors import (
    DuplicateBrokerRegistrationError,
    InvalidConfigError,
    InvalidRequestError,
    StoreUnavailableError,
    StratalogError,
)

GIVEN = {"broker.id": "2", "log.dirs": "s3://bucket/two/", "stratalog.metadata.root": "s3://bucket/metadata"}


def test_identity_and_settings_stand_side_by_side() -> None:
    told = BrokerProperties.from_properties({**GIVEN, "broker.rack": "a", "num.partitions": "6"})
    assert told == BrokerProperties(2, "s3://bucket/two", "s3://bucket/metadata", "a", BrokerConfig(num_partitions=6))


def test_folders_are_absolute_so_that_others_find_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = BrokerProperties.from_properties({**GIVEN, "log.dirs": "data/two"})
    assert (told.root, told.rack) == (str(tmp_path / "data/two"), None)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"broker.id": None}, 'Missing required configuration "broker.id" which has no default value.'),
        ({"log.dirs": None}, 'Missing required configuration "log.dirs" which has no default value.'),
        ({"stratalog.metadata.root": None}, 'Missing required configuration "stratalog.metadata.root" which has no'),
        ({"broker.id": "-1"}, "Invalid value -1 for configuration broker.id: Value must be at least 0"),
        ({"broker.rack": ""}, "Invalid value  for configuration broker.rack: String must be non-empty"),
        ({"log.dirs": "a,b"}, "Invalid value a,b for configuration log.dirs: Value must be one directory"),
        (
            {"log.dirs": "s3://bucket/metadata"},
            "configuration stratalog.metadata.root: Value must differ from log.dirs",
        ),
        ({"node.id": "2"}, "Unknown broker config name: node.id"),
    ],
)
def test_what_is_missing_or_wrong_is_named_in_kafkas_words(changed: dict[str, str | None], message: str) -> None:
    given = {name: value for name, value in {**GIVEN, **changed}.items() if value is not None}
    with pytest.raises(InvalidConfigError, match=re.escape(message)):
        BrokerProperties.from_properties(given)


def test_broker_toml_is_a_broker() -> None:
    given = flatten_toml((CONF_DIR / "broker.toml").read_text(encoding="utf-8"))
    assert list(given) == [each.name for each in IDENTITY[:3]]
    assert BrokerProperties.from_properties(given).config == BrokerConfig()


@pytest.mark.parametrize(
    ("refusal", "waited_ms", "final"),
    [
        (DuplicateBrokerRegistrationError("live elsewhere"), 0, False),
        (DuplicateBrokerRegistrationError("live elsewhere"), 13_499, False),
        (DuplicateBrokerRegistrationError("live elsewhere"), 13_500, True),
        (InvalidRequestError("the root is broker 2's"), 0, True),
        (StoreUnavailableError("away"), 100_000, False),
    ],
)
def test_a_registration_is_retried_while_that_can_help(refusal: StratalogError, waited_ms: int, final: bool) -> None:
    assert is_final(refusal, waited_ms, session_timeout_ms=9_000) is final
