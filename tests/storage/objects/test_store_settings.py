"""Settings of object stores: which of them count for a URL, and that no error shows a secret."""

from __future__ import annotations

import re
import traceback

import pytest

from stratalog.storage.errors import InvalidConfigError, LogDirNotFoundError, StoreUnavailableError
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.store_settings import STORE_SETTINGS, StoreSettings
from tests.stores.s3_double import BUCKET, S3Double, s3_double

SPARK_REDACTS = re.compile(r"(?i)secret|password|token|access[.]?key")
"""The default of `spark.redaction.regex`."""
SECRET = "hush-hush"

NEEDED = {
    "s3://b": {"aws.access.key.id": "me", "aws.secret.access.key": SECRET},
    "az://b": {"azure.storage.account.name": "account"},
    "gs://b": {},
}
"""What a store of the kind does not open without."""


def test_spark_redacts_every_secret_by_its_name() -> None:
    secrets = [key.name for key in STORE_SETTINGS if key.type == "PASSWORD"]
    assert len(secrets) == 5
    assert all(SPARK_REDACTS.search(name) for name in secrets)


@pytest.mark.parametrize(
    ("url", "config", "client"),
    [
        ("s3://b/x", {"aws_region": "eu-west-1", "aws_skip_signature": "true"}, {"allow_http": True}),
        ("abfss://c@account.dfs.core.windows.net/x", {"azure_storage_client_id": "me"}, {}),
        ("gs://b/x", {}, {}),
    ],
)
def test_those_of_a_urls_provider_count(url: str, config: dict[str, str], client: dict[str, bool]) -> None:
    settings = StoreSettings.of(
        {
            "aws.region": "eu-west-1",
            "aws.skip.signature": "true",
            "aws.allow.http": "TRUE",
            "azure.storage.client.id": "me",
        }
    )
    assert settings.config(url) == config
    assert settings.client_options(url) == client


def test_each_setting_is_one_that_the_store_takes() -> None:
    for key in STORE_SETTINGS:
        if key.name.startswith("object."):
            continue  # of each put
        text = "true" if key.type == "BOOLEAN" else "http://localhost:1" if "endpoint" in key.name else "YQ=="
        text = "aws:kms" if key.name == "aws.server.side.encryption" else text
        scheme = {"aws": "s3://b", "azure": "az://b", "google": "gs://b"}[key.name.partition(".")[0]]
        given = {**NEEDED[scheme], key.name: text}
        if key.name == "google.service.account":
            with pytest.raises(LogDirNotFoundError, match=r"service account file from YQ=="):
                open_store(scheme, settings=StoreSettings.of(given))
        else:
            open_store(scheme, settings=StoreSettings.of(given))


def test_given_settings_take_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_double() as given, s3_double() as other:
        for name, value in other.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
        store = open_store(f"s3://{BUCKET}/root", settings=settings_of(given))
        store.put("a", b"1")
        assert store.get("a") == b"1"
        assert (given.signers, other.requests) == ({"key-of-the-options"}, [])


def test_no_error_shows_a_secret() -> None:
    given = {
        "azure.storage.account.name": "account",
        "azure.storage.endpoint": "http://localhost:1",
        "azure.storage.sas.token": f"sv=2024&sig={SECRET}",
        "azure.allow.http": "true",
    }
    store = open_store("az://container/root", request_ms=100, settings=StoreSettings.of(given))
    with pytest.raises(StoreUnavailableError, match="get az://container/root/a") as failure:
        store.get("a")
    assert SECRET not in "".join(traceback.format_exception(failure.value))
    with pytest.raises(InvalidConfigError) as refusal:
        StoreSettings.of({"aws.secret.access.keys": SECRET})
    assert SECRET not in str(refusal.value)
    assert SECRET not in repr(StoreSettings.of(given))


def settings_of(double: S3Double) -> StoreSettings:
    """The settings by which a client finds it."""
    return StoreSettings.of(
        {
            "aws.endpoint.url": double.endpoint,
            "aws.allow.http": "true",
            "aws.region": "eu-west-1",
            "aws.access.key.id": "key-of-the-options",
            "aws.secret.access.key": SECRET,
        }
    )
