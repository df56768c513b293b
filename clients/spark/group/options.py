"""The options of a streaming query in a consumer group, as one value. Pure.

`kafka.group.id` (or `group.id`) puts a query into a group. Its Kafka configs have the prefix `kafka.`, as all of the
connector's; the names, defaults and ranges are those of Kafka's consumer. Ours are `stratalog.group.mode`,
`stratalog.auto.offset.reset` (the connector refuses Kafka's own name), `stratalog.listener` and `stratalog.transport`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stratalog.clients.config import ConsumerConfig
from stratalog.server.remote.connections.config import CONNECTION_CONFIGS, ConnectionConfig
from stratalog.storage.config_def import ConfigKey, one_of
from stratalog.storage.errors import InvalidConfigError, InvalidGroupIdError

GROUP_ID, MODE, AUTO_OFFSET_RESET = "kafka.group.id", "stratalog.group.mode", "stratalog.auto.offset.reset"
LISTENER = "stratalog.listener"
_SHORT_GROUP_ID = "group.id"
_CONSUMER_NAMES = (
    *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "group.instance.id", "group.protocol"),
    *("group.remote.assignor", "partition.assignment.strategy", "client.id", "client.rack", "retry.backoff.ms"),
    *("request.timeout.ms", "default.api.timeout.ms"),
)
"""Kafka's consumer configs that a query's membership or its commits use."""


CONNECTION_OPTIONS = {
    key.name: key.name if key.name.startswith("stratalog.") else f"kafka.{key.name}" for key in CONNECTION_CONFIGS
}
"""The option of each config of connections."""


OPTION_NAMES = frozenset(
    {GROUP_ID, _SHORT_GROUP_ID, MODE, AUTO_OFFSET_RESET, LISTENER}
    | {f"kafka.{name}" for name in _CONSUMER_NAMES}
    | set(CONNECTION_OPTIONS.values())
)
"""The names, in lower case, of the options that a query in a group has and another has not."""


class GroupMode(StrEnum):
    """COMMIT: the query reads all partitions and commits their offsets. SHARE: it is a member, and reads its part."""

    COMMIT = "commit"
    SHARE = "share"


_MODE = ConfigKey(MODE, "STRING", GroupMode.COMMIT, validator=one_of(*GroupMode))


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """A query's part in group `consumer.group_id`.

    connection  how brokers are called, and `listener` at which of their listeners; "" as `RemoteCluster` chooses
    """

    consumer: ConsumerConfig
    mode: GroupMode = GroupMode.COMMIT
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)
    listener: str = ""

    @property
    def group_id(self) -> str:
        return self.consumer.group_id

    @property
    def names(self) -> frozenset[str]:
        """The names, in lower case, of the options that a query in a group has and another has not."""
        return OPTION_NAMES

    @property
    def is_shared(self) -> bool:
        return self.mode is GroupMode.SHARE


def group_options(params: Mapping[str, str], *, starts_at_group: bool) -> GroupOptions | None:
    """The group of a streaming query, None without `kafka.group.id`; `params` by lower-case names.

    starts_at_group  `startingOffsets=group` is set
    InvalidConfigError for what only a group has, for two group ids, and for a bad config of Kafka's;
    InvalidGroupIdError for an empty id.
    """
    group_id = params.get(GROUP_ID, params.get(_SHORT_GROUP_ID))
    if group_id is None:
        _refuse_without_group(params, starts_at_group=starts_at_group)
        return None
    if group_id != params.get(_SHORT_GROUP_ID, group_id):
        raise InvalidConfigError(
            f"{GROUP_ID}={group_id} and {_SHORT_GROUP_ID}={params[_SHORT_GROUP_ID]} are two names of one option. "
            "Set one."
        )
    if not group_id.strip():
        raise InvalidGroupIdError(f"{GROUP_ID} must not be empty: name a group, or leave the option out")
    given = {name: params[f"kafka.{name}"] for name in _CONSUMER_NAMES if f"kafka.{name}" in params}
    if AUTO_OFFSET_RESET in params:
        given["auto.offset.reset"] = params[AUTO_OFFSET_RESET]
    mode = GroupMode(_MODE.parse(params.get(MODE, GroupMode.COMMIT).lower()))
    if mode is GroupMode.SHARE:
        _refuse_with_share(params, starts_at_group=starts_at_group)
    connection = {name: params[option] for name, option in CONNECTION_OPTIONS.items() if option in params}
    ConnectionConfig.from_settings(connection, {})
    return GroupOptions(
        ConsumerConfig.from_settings(given | {"group.id": group_id, "enable.auto.commit": "false"}, {}),
        mode,
        connection,
        params.get(LISTENER, ""),
    )


def _refuse_without_group(params: Mapping[str, str], *, starts_at_group: bool) -> None:
    for name in (MODE, AUTO_OFFSET_RESET):
        if name in params:
            raise InvalidConfigError(f"{name} needs {GROUP_ID}, the group that the query is in. Set it, too.")
    if starts_at_group:
        raise InvalidConfigError(
            f"startingOffsets=group needs {GROUP_ID}, the group whose committed offsets they are. Set it, too."
        )


_OTHER_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")


def _refuse_with_share(params: Mapping[str, str], *, starts_at_group: bool) -> None:
    if "assign" in params:
        raise InvalidConfigError(
            f"{MODE}=share needs subscribe or subscribePattern: with assign the group has no partitions to share out. "
            "Use one of the two."
        )
    for name in _OTHER_STARTS:
        if name.lower() in params and not (starts_at_group and name == "startingOffsets"):
            raise InvalidConfigError(
                f"{name} cannot be set with {MODE}=share: partitions begin at the group's committed offset, "
                f"and without one at {AUTO_OFFSET_RESET}. Leave it out."
            )
