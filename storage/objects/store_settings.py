"""Settings of object stores that are given instead of the environment's: endpoint, region, credentials. Pure.

A name is that of the environment variable which the tools read, in lower case with dots: `aws.endpoint.url` for
AWS_ENDPOINT_URL. A secret's name is one that Spark's `spark.redaction.regex` recognizes by default, so that Spark's
plans, page and logs do not show its value; Azure's AZURE_STORAGE_ACCOUNT_KEY is `azure.storage.access.key` therefore.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from stratalog.storage.config_def import HIDDEN, ConfigDef, ConfigKey, one_of
from stratalog.storage.errors import InvalidConfigError

READABLE_CLASSES = (
    "STANDARD",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "REDUCED_REDUNDANCY",
    "NEARLINE",
    "COLDLINE",
    "Hot",
    "Cool",
    "Cold",
)
"""Storage classes, and Azure's tiers, whose objects are read at once; those of an archive have to be restored first."""


def parsed_tags(text: str) -> dict[str, str]:
    """Tags of objects, as `team=lake,env=prod`. ValueError for one without a value, and for more than ten, S3's most.

    >>> parsed_tags("team=lake, env=prod")
    {'team': 'lake', 'env': 'prod'}
    """
    pairs = [each.strip().partition("=") for each in text.split(",") if each.strip()]
    if any(not (name and value) for name, _, value in pairs) or len(pairs) > 10:
        raise ValueError("Tags must be at most ten of the form name=value, with commas between them")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _tags(text: str) -> str:
    parsed_tags(text)
    return text


STORE_SETTINGS = ConfigDef(
    "store",
    [
        ConfigKey("aws.endpoint.url", "STRING", "", doc="the address of an S3 server that is not Amazon's"),
        ConfigKey("aws.region", "STRING", "us-east-1", doc="the region of the buckets"),
        ConfigKey("aws.access.key.id", "STRING", "", doc="the id of the access key"),
        ConfigKey("aws.secret.access.key", "PASSWORD", "", doc="the access key's secret"),
        ConfigKey("aws.session.token", "PASSWORD", "", doc="the token of temporary credentials"),
        ConfigKey("aws.virtual.hosted.style.request", "BOOLEAN", False, doc="the bucket is part of the host's name"),
        ConfigKey("aws.skip.signature", "BOOLEAN", False, doc="requests without credentials, for public buckets"),
        ConfigKey("aws.allow.http", "BOOLEAN", False, doc="an endpoint without TLS is allowed"),
        ConfigKey("aws.server.side.encryption", "STRING", "", doc="how S3 encrypts objects: AES256, aws:kms"),
        ConfigKey("aws.sse.kms.key.id", "STRING", "", doc="the key of KMS with which it does"),
        ConfigKey("aws.sse.bucket.key.enabled", "BOOLEAN", False, doc="one data key of KMS for the whole bucket"),
        ConfigKey("azure.storage.endpoint", "STRING", "", doc="the address of a blob server that is not Azure's"),
        ConfigKey("azure.storage.account.name", "STRING", "", doc="the storage account"),
        ConfigKey("azure.storage.access.key", "PASSWORD", "", doc="a key of the account"),
        ConfigKey("azure.storage.sas.token", "PASSWORD", "", doc="a shared access signature"),
        ConfigKey("azure.storage.tenant.id", "STRING", "", doc="the tenant of a service principal"),
        ConfigKey("azure.storage.client.id", "STRING", "", doc="the id of a service principal"),
        ConfigKey("azure.storage.client.secret", "PASSWORD", "", doc="the secret of a service principal"),
        ConfigKey("azure.allow.http", "BOOLEAN", False, doc="an endpoint without TLS is allowed"),
        ConfigKey("google.service.account", "STRING", "", doc="the path of a service account's key file"),
        ConfigKey("google.allow.http", "BOOLEAN", False, doc="an endpoint without TLS is allowed"),
        ConfigKey("object.tags", "STRING", "", doc="tags of each object that is put: name=value,…", validator=_tags),
        ConfigKey(
            "object.storage.class",
            "STRING",
            "",
            doc="the storage class of objects from 128 KiB on; none of an archive",
            validator=one_of("", *READABLE_CLASSES),
        ),
    ],
)
_PROVIDERS = {
    **dict.fromkeys(("s3", "s3a"), "aws"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), "azure"),
    "gs": "google",
}
"""The first part of a setting's name by the scheme of a URL."""

TAGS, STORAGE_CLASS = "object.tags", "object.storage.class"
"""Settings of each put, not of a store's client."""

_ALLOW_HTTP = ".allow.http"
"""End of the names that are the HTTP client's, not the store's."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Settings for every root of a cluster; each takes precedence over the environment's.

    given  names without prefix and their text, in order; not shown
    """

    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """InvalidConfigError for an unknown name, with the nearest known one, or a bad value, which no error shows
        where it is a secret."""
        STORE_SETTINGS.parse(given)
        return cls(tuple(sorted(given.items())))

    def config(self, url: str) -> dict[str, str]:
        """What counts for the store at `url`, by obstore's names, but for `client_options`.

        >>> StoreSettings.of({"aws.region": "eu-west-1", "azure.storage.client.id": "x"}).config("s3://bucket/a")
        {'aws_region': 'eu-west-1'}
        """
        return {name.replace(".", "_"): text for name, text in self._of(url) if not name.endswith(_ALLOW_HTTP)}

    def client_options(self, url: str) -> dict[str, bool]:
        """The options of the HTTP client at `url`, by obstore's names."""
        given = [text for name, text in self._of(url) if name.endswith(_ALLOW_HTTP)]
        return {"allow_http": ConfigKey("allow.http", "BOOLEAN", False).parse(given[0])} if given else {}

    @property
    def tags(self) -> dict[str, str]:
        """Of each object that is put; none by default."""
        return parsed_tags(dict(self.given).get(TAGS, ""))

    @property
    def storage_class(self) -> str:
        """Of large objects; "" leaves it to the store."""
        return dict(self.given).get(STORAGE_CLASS, "")

    def over(self, general: StoreSettings) -> StoreSettings:
        """These, and the others of `general`.

        >>> StoreSettings.of({"aws.region": "eu-west-1"}).over(StoreSettings.of({"aws.region": "x"})).config("s3://b")
        {'aws_region': 'eu-west-1'}
        """
        return StoreSettings(tuple(sorted({**dict(general.given), **dict(self.given)}.items())))

    def _of(self, url: str) -> list[tuple[str, str]]:
        provider = _PROVIDERS.get(urlsplit(url).scheme)
        named = [(name, name.partition(".")[0], text) for name, text in self.given]
        return [(name, text) for name, of, text in named if of != "object" and provider in (None, of)]

    def redacted(self, text: str) -> str:
        """`text` without the value of any secret."""
        for name, value in self.given:
            if value and STORE_SETTINGS.key(name).type == "PASSWORD":
                text = text.replace(value, HIDDEN)
        return text

    def without_secrets(self, cause: Exception) -> Exception | None:
        """An error's cause for its traceback; None when the cause shows a secret."""
        return cause if self.redacted(str(cause)) == str(cause) else None


FROM_ENVIRONMENT = StoreSettings()
"""Nothing is given: the environment alone counts."""


def settings_of_places(text: str) -> dict[str, StoreSettings]:
    """The settings of each place of a TOML file, whose tables are named by URLs. InvalidConfigError, which shows no
    value, for a text that is no TOML, a place that is no URL, and as `StoreSettings.of`.

    >>> found = settings_of_places('["s3://logs/kafka"]\\naws.region = "eu-west-1"')
    >>> nearest(found, "s3://logs/kafka/orders.1f/orders-0").config("s3://logs/kafka")
    {'aws_region': 'eu-west-1'}
    >>> nearest(found, "s3://logs/kafka-2") is FROM_ENVIRONMENT
    True
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as reason:
        line = str(reason).rpartition("(")[2].rstrip(")")
        raise InvalidConfigError(f"the settings of places are no TOML: at {line}") from None
    found = {}
    for place, table in tables.items():
        if "://" not in place or not isinstance(table, dict):
            raise InvalidConfigError(f"the settings of places have {place!r}, expected a table named by a URL")
        found[place.rstrip("/")] = StoreSettings.of(_flat(table, ""))
    return found


def _flat(table: Mapping[str, object], prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def nearest(places: Mapping[str, StoreSettings], url: str) -> StoreSettings:
    """The settings of the place that is, or contains, `url`; of the innermost of several."""
    around = [place for place in places if f"{url.rstrip('/')}/".startswith(f"{place}/")]
    return places[max(around, key=len)] if around else FROM_ENVIRONMENT
