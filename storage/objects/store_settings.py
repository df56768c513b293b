"""Settings of object stores that are given instead of the environment's: endpoint, region, credentials. Pure.

A name is that of the environment variable which the tools read, in lower case with dots: `aws.endpoint.url` for
AWS_ENDPOINT_URL. A secret's name is one that Spark's `spark.redaction.regex` recognizes by default, so that Spark's
plans, page and logs do not show its value; Azure's AZURE_STORAGE_ACCOUNT_KEY is `azure.storage.access.key` therefore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from stratalog.storage.config_def import HIDDEN, ConfigDef, ConfigKey

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
    ],
)
_PROVIDERS = {
    **dict.fromkeys(("s3", "s3a"), "aws"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), "azure"),
    "gs": "google",
}
"""The first part of a setting's name by the scheme of a URL."""

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

    def _of(self, url: str) -> list[tuple[str, str]]:
        provider = _PROVIDERS.get(urlsplit(url).scheme)
        return [(name, text) for name, text in self.given if provider in (None, name.partition(".")[0])]

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
