"""UpdateFeatures: levels of features, of which there is one each. I/O: none of its own; the broker checks ACLs.

So each update is one to the level in force, or is refused. The checks, their order and their words are Kafka's.
Source: KIP-584, KIP-778, `FeatureControlManager.updateFeature`, `QuorumController.updateFeatures`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.apis.api_versions import FEATURES
from stratalog.server.request.api import Api, Call, failed
from stratalog.server.request.broker import ApiFamily
from stratalog.storage.errors import InvalidUpdateVersionError, StratalogError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.schema import Entity
from stratalog.wire.messages.values import Values

_FIRST_WITH_UPGRADE_TYPE = 1


class UpgradeType(IntEnum):
    """Which way a level may change, as `FeatureUpdate.UpgradeType`."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [Api(ApiKey.UPDATE_FEATURES, self._update, _refused)]

    def _update(self, call: Call) -> Values:
        """Nothing changes, whether or not it is only validated. Up to version 1 each feature has a result."""
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
        for update in call.request.feature_updates:
            refusal = _refusal(update.feature, update.max_version_level, _upgrade_type(update))
            if refusal is not None:
                named = f"Invalid update version {update.max_version_level} for feature {update.feature}. {refusal}"
                raise InvalidUpdateVersionError(
                    f"The update failed for all features since the following feature had an error: {named}"
                )
        results = [{"feature": update.feature, **failed(None)} for update in call.request.feature_updates]
        return {**failed(None), "results": results}


def _upgrade_type(update: Entity) -> int:
    if int(update.__version__) >= _FIRST_WITH_UPGRADE_TYPE:
        return int(update.upgrade_type)
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


def _refusal(feature: str, level: int, upgrade_type: int) -> str | None:
    """Why a feature cannot have this level; None if it has it.

    >>> _refusal("group.version", 1, UpgradeType.UPGRADE)
    >>> _refusal("group.version", 0, UpgradeType.SAFE_DOWNGRADE)
    'This cluster only supports versions 1-1'
    """
    if upgrade_type not in set(UpgradeType):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    supported = FEATURES.get(feature)
    if supported is None:
        return "This cluster does not support this feature."
    return None if level == supported else f"This cluster only supports versions {supported}-{supported}"


def _refused(_call: Call, error: StratalogError) -> Values:
    return {**failed(error), "results": []}
