"""Settings by place: which of a file's count, when it is read again, and what each put carries."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.storage.cadence import SETTINGS_RECHECK
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.place_settings import VARIABLE, PlacedSettings, SettingsFile
from stratalog.storage.objects.store_settings import FROM_ENVIRONMENT, StoreSettings, settings_of_places
from tests.storage.logs import FakeClock
from tests.stores.s3_double import BUCKET, s3_double

SECRET = "hush-hush"
PLACE = "s3://logs/kafka"


def table(place: str, region: str) -> str:
    return f'["{place}"]\naws.region = "{region}"\naws.secret.access.key = "{SECRET}"\n'


def region_of(placed: PlacedSettings) -> str:
    return placed.current.config(PLACE)["aws_region"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "stores.toml"
    found.write_text(table(PLACE, "one"))
    return found


def test_the_innermost_place_counts_and_goes_before_what_is_given_for_all(path: Path) -> None:
    path.write_text(table("s3://logs", "outer") + table(PLACE, "inner"))
    file, given = SettingsFile(str(path), FakeClock()), StoreSettings.of({"aws.region": "general"})
    regions = {
        url: PlacedSettings(url, given, file).current.config(url)["aws_region"]
        for url in ("s3://logs", "s3://logs/other", PLACE, f"{PLACE}/orders.1f", "s3://elsewhere")
    }
    assert list(regions.values()) == ["outer", "outer", "inner", "inner", "general"]


def test_a_file_that_changed_is_read_again_after_a_while_or_at_once(path: Path) -> None:
    clock = FakeClock()
    file = SettingsFile(str(path), clock)
    placed = PlacedSettings(PLACE, FROM_ENVIRONMENT, file)
    path.write_text(table(PLACE, "second"))
    assert not placed.have_changed()
    assert placed.have_changed(at_once=True)
    assert region_of(placed) == "second"
    path.write_text(table(PLACE, "the third"))
    clock.now_ms += SETTINGS_RECHECK.ms
    assert placed.have_changed()
    assert region_of(placed) == "the third"
    assert not placed.have_changed(at_once=True)


def test_a_file_that_is_spoilt_or_gone_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = SettingsFile(str(path), FakeClock())
    placed = PlacedSettings(PLACE, FROM_ENVIRONMENT, file)
    path.write_text(f'["{PLACE}"]\naws.secret.access.key = "{SECRET}')
    assert not placed.have_changed(at_once=True)
    path.unlink()
    assert not placed.have_changed(at_once=True)
    assert region_of(placed) == "one"
    assert "stay as they are" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "text",
    ["no toml at all", '["no/url"]\naws.region = "x"', f'["{PLACE}"]\naws.nonsense = "{SECRET}"', f'"{PLACE}" = 1'],
)
def test_a_file_that_says_nothing_sensible_is_refused_without_its_values(text: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        settings_of_places(text)
    assert SECRET not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="cannot be read: No such file"):
        SettingsFile(str(tmp_path / "absent.toml"), FakeClock())


def test_each_put_has_the_settings_of_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stores.toml"
    path.write_text(
        f"""["s3://{BUCKET}/lake"]
        aws.access.key.id = "lakes"
        aws.server.side.encryption = "aws:kms"
        aws.sse.kms.key.id = "the-key"
        object.tags = "team=lake,env=prod"
        object.storage.class = "STANDARD_IA"
        """
    )
    monkeypatch.setenv(VARIABLE, str(path))
    with s3_double() as s3:
        for variable, value in s3.environment().items():
            monkeypatch.setenv(variable, value)
        lake, other = open_store(f"s3://{BUCKET}/lake"), open_store(f"s3://{BUCKET}/other")
        lake.put("large", bytes(200_000))
        assert lake.create("small", b"1")
        other.put("plain", bytes(200_000))
        sent = {name: s3.headers[name] for name in ("lake/large", "lake/small", "other/plain")}
    tags, encryption, storage_class = "x-amz-tagging", "x-amz-server-side-encryption", "x-amz-storage-class"
    for name in ("lake/large", "lake/small"):
        assert set(sent[name][tags].split("&")) == {"team=lake", "env=prod"}
        assert sent[name][encryption] == "aws:kms"
        assert sent[name]["x-amz-server-side-encryption-aws-kms-key-id"] == "the-key"
    assert sent["lake/large"][storage_class] == "STANDARD_IA"
    assert storage_class not in sent["lake/small"]
    assert not {tags, encryption, storage_class} & set(sent["other/plain"])
    assert s3.signers == {"lakes", "any"}


@pytest.mark.parametrize(
    ("name", "value"), [("object.tags", "team"), ("object.tags", "a="), ("object.storage.class", "DEEP_ARCHIVE")]
)
def test_tags_without_a_value_and_archives_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=value):
        StoreSettings.of({name: value})
