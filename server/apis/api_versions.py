"""ApiVersions: the APIs and versions that are served, and the levels of features in force. Pure.

A Java producer uses version 2 of transactions (KIP-890) only where `transaction.version` is finalized at 2: then it
adds no partitions itself, and every transaction ends with a new producer epoch. Java's clients read no other feature;
tools show them all.
Source: KIP-35, KIP-511, KIP-584, `ApiVersionsResponse`, `RequestChannel.buildResponseSend`, `BrokerFeatures`,
`TransactionManager.maybeUpdateTransactionV2Enabled`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from stratalog.server.request.api import Api, Call, error_only
from stratalog.storage.errors import InvalidRequestError, UnsupportedVersionError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import encode_response
from stratalog.wire.messages.schema import Entity, response_type
from stratalog.wire.messages.values import Values

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_WITH_SOFTWARE_NAME = 3

FEATURES = {"group.version": 1, "metadata.version": 25, "transaction.version": 2}
"""Levels in force, by Kafka's names: KIP-848's groups, KIP-890's transactions. `metadata.version` 25 is 4.0-IV3, which
includes both; Kafka 4.3's 30 also includes share and streams groups, which are not here.

UpdateFeatures alters none of them, so each is the lowest and the highest level that is supported.
Kafka supports most from 0 on, and hides those from clients below version 4, which cannot read a 0 (KAFKA-17492)."""
BETWEEN_BROKERS = frozenset({ApiKey.BROKER_HEARTBEAT})
"""APIs that brokers call alone: Kafka serves them at listeners that no client reaches."""
FEATURES_EPOCH = 0
"""The number of changes of levels so far."""


class ApiVersions:
    """Lists the other APIs and itself."""

    def __init__(self, others: Sequence[Api]) -> None:
        self._own = Api(ApiKey.API_VERSIONS, self._answer, error_only, is_quick=True)
        self._values = {"error_code": None, "api_keys": rows([*others, self._own]), **_features()}

    def apis(self) -> Iterable[Api]:
        return [self._own]

    def _answer(self, call: Call) -> Values:
        name = invalid_software_name(call.request)
        if name is not None:
            raise InvalidRequestError(f"client software name or version {name!r}")
        if call.version >= FIRST_WITH_SOFTWARE_NAME:
            software = (call.request.client_software_name, call.request.client_software_version)
            call.connection.memory.software = software
        return self._values


def invalid_software_name(request: Entity) -> str | None:
    """The software name or version of an ApiVersions request that is not one; None for a valid request."""
    if int(request.__version__) < FIRST_WITH_SOFTWARE_NAME:
        return None
    names = (request.client_software_name, request.client_software_version)
    return next((name for name in names if not _SOFTWARE_NAME.fullmatch(name)), None)


def rows(apis: Iterable[Api]) -> list[Values]:
    """The APIs as a response lists them, by key."""
    return [
        {
            "api_key": api.key,
            "min_version": api.versions[0] if api.advertised_from is None else api.advertised_from,
            "max_version": api.versions[-1],
        }
        for api in sorted(apis, key=lambda api: api.key)
        if api.key not in BETWEEN_BROKERS
    ]


def _features() -> Values:
    """Supported and finalized features, tagged fields from version 3 on."""
    levels = FEATURES.items()
    return {
        "supported_features": [{"name": name, "min_version": level, "max_version": level} for name, level in levels],
        "finalized_features_epoch": FEATURES_EPOCH,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level} for name, level in levels
        ],
    }


def unsupported_version(correlation_id: int, apis: Iterable[Api]) -> bytes:
    """The answer to ApiVersions of an unknown version: in version 0, with the versions of ApiVersions itself."""
    own = [api for api in apis if api.key == ApiKey.API_VERSIONS]
    values = {"error_code": UnsupportedVersionError.code, "api_keys": rows(own)}
    return encode_response(correlation_id, values, response_type(ApiKey.API_VERSIONS, 0))
