"""SaslHandshake and SaslAuthenticate on a connection that needs none, and users' SCRAM credentials.

I/O: the metadata log, for changes. What belongs to an authentication never comes here: `endpoint.security` answers it.
Source: Kafka's `KafkaApis.handleSaslHandshakeRequest`, `handleSaslAuthenticateRequest`, `ControllerApis`,
`ScramControlManager`, `ScramImage` (KIP-152, KIP-554).
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.scram import (
    ScramDeletion,
    ScramDescription,
    ScramUpsertion,
    alter_credentials,
    describe_credentials,
)
from stratalog.server.request.api import Api, Call, error_only, failed
from stratalog.server.request.broker import ApiFamily
from stratalog.storage.errors import IllegalSaslStateError, StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values


class SaslApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.SASL_HANDSHAKE, _no_handshake, error_only, is_quick=True),
            Api(ApiKey.SASL_AUTHENTICATE, _no_authentication, is_quick=True),
            Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, self._describe),
            Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, self._alter, _alterations_refused, is_slow=True),
        ]

    def _describe(self, call: Call) -> Values:
        self._broker.check(call, Operation.DESCRIBE, ResourceType.CLUSTER)
        users = call.request.users
        found = describe_credentials(self._broker.image(0), None if users is None else [each.name for each in users])
        return {**failed(None), "results": [_description_values(each) for each in found]}

    def _alter(self, call: Call) -> Values:
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
        deletions = [ScramDeletion(each.name, each.mechanism) for each in call.request.deletions]
        upsertions = [
            ScramUpsertion(each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
            for each in call.request.upsertions
        ]
        errors = self._broker.view.propose(lambda image: alter_credentials(image, deletions, upsertions))
        return {"results": [{"user": user, **failed(error)} for user, error in errors.items()]}


def _no_handshake(_call: Call) -> Values:
    return {"error_code": IllegalSaslStateError.code}


def _no_authentication(_call: Call) -> Values:
    raise IllegalSaslStateError("SaslAuthenticate request received after successful authentication")


def _description_values(described: ScramDescription) -> Values:
    infos = [{"mechanism": mechanism.code, "iterations": count} for mechanism, count in described.credentials]
    return {"user": described.user, **failed(described.error), "credential_infos": infos}


def _alterations_refused(call: Call, error: StratalogError) -> Values:
    users = dict.fromkeys(each.name for each in (*call.request.deletions, *call.request.upsertions))
    return {"results": [{"user": user, **failed(error)} for user in users]}
