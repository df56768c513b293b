"""DescribeClientQuotas, AlterClientQuotas. I/O: the metadata log, for changes.

Source: `ClientQuotasImage.describe`, `ClientQuotaControlManager.alterClientQuotas` (KIP-546).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from typing import Any

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.client_quotas import (
    QuotaMatch,
    alter_client_quota,
    describe_client_quotas,
    quotas_of,
)
from stratalog.server.request.api import Api, Call, failed, refused_each, repeated
from stratalog.server.request.broker import ApiFamily, attempted
from stratalog.storage.errors import InvalidRequestError, StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values


class QuotaApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        refused = refused_each("entries", "entries", _entry_error)
        return [
            Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, self._describe, _describe_refused),
            Api(ApiKey.ALTER_CLIENT_QUOTAS, self._alter, refused, is_slow=True),
        ]

    def _describe(self, call: Call) -> Values:
        self._broker.check(call, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        wanted = [QuotaMatch(each.entity_type, each.match_type, each.match) for each in call.request.components]
        found = describe_client_quotas(quotas_of(self._broker.image(0)), wanted, is_strict=call.request.strict)
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            for entity, values in found.items()
        ]
        return {**failed(None), "entries": entries}

    def _alter(self, call: Call) -> Values:
        self._broker.check(call, Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
        twice = repeated(_parts(each) for each in call.request.entries)
        return {
            "entries": [
                attempted(partial(self._altered, call, entry, _parts(entry) in twice), partial(_entry_error, entry))
                for entry in call.request.entries
            ]
        }

    def _altered(self, call: Call, entry: Any, is_twice: bool) -> Values:
        parts = _parts(entry)
        if is_twice:
            raise InvalidRequestError(f"Ignoring duplicate entity {dict(parts)}")
        changes = [(op.key, None if op.remove else op.value) for op in entry.ops]
        decide = partial(alter_client_quota, parts=parts, changes=changes)
        if call.request.validate_only:
            decide(self._broker.image(0))
        else:
            self._broker.view.propose(decide)
        return {**failed(None), "entity": _named(entry)}


def _parts(entry: Any) -> tuple[tuple[str, str | None], ...]:
    return tuple((each.entity_type, each.entity_name) for each in entry.entity)


def _named(entry: Any) -> list[Values]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in sorted(_parts(entry), key=itemgetter(0))]


def _entry_error(entry: Any, error: StratalogError) -> Values:
    return {**failed(error), "entity": _named(entry)}


def _describe_refused(_call: Call, error: StratalogError) -> Values:
    return {**failed(error), "entries": None}
