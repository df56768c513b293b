"""Configs of all brokers are altered; quotas of clients are set and removed. I/O: the metadata log, or brokers."""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.changes.change import ClusterChange, Preview, PreviewLine
from stratalog.clients.console.question import Parameter
from stratalog.clients.console.questions.access import QUOTA_UNITS
from stratalog.replication.controller.cluster_configs import alter_cluster_configs
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.client_quotas import (
    CLIENT_ID,
    KEYS,
    USER,
    QuotaEntity,
)
from stratalog.server.admin.configs import DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigInForce
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidConfigError, InvalidRequestError, ResourceNotFoundError

OTHERS = "<default>"
"""Kafka's word for all users, or client ids, without a quota of their own."""


def _may_alter(asker: Asker) -> None:
    asker.check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)


# -- configs of brokers ----------------------------------------------------------------------------------------------


def _config(asker: Asker, name: str) -> ConfigInForce:
    """A config that can be altered. InvalidConfigError names those that can."""
    asker.cluster.view.refresh()
    found = {each.name: each for each in asker.cluster.admin.describe_cluster_configs()}
    if name not in found:
        raise InvalidConfigError(f"{name} is not altered while brokers run; these are: {', '.join(sorted(found))}")
    return found[name]


def preview_alter_brokers(asker: Asker, name: str, value: str, remove: bool) -> Preview:
    _may_alter(asker)
    found = _config(asker, name)
    before = "hidden" if found.is_sensitive else f"{found.text} ({found.source})"
    if not remove:
        view = asker.cluster.view
        if isinstance(view, ClusterView):  # brokers check it when it is altered
            alter_cluster_configs(view.image, {name: value})
        return Preview([PreviewLine(name, before, "hidden" if found.is_sensitive else value)])
    if found.source != DYNAMIC_DEFAULT_BROKER_CONFIG:
        raise InvalidConfigError(f"{name} was not altered for all brokers")
    after = next(each.value for each in found.synonyms if each.source != DYNAMIC_DEFAULT_BROKER_CONFIG)
    return Preview([PreviewLine(name, before, f"{after} (as brokers are started)")])


def alter_brokers(asker: Asker, name: str, value: str, remove: bool) -> str:
    _may_alter(asker)
    _config(asker, name)
    asker.cluster.admin.alter_cluster_configs({name: None if remove else value})
    return f"{name} is again as brokers are started." if remove else f"{name} is altered for all brokers."


# -- quotas ----------------------------------------------------------------------------------------------------------


def entity_of(user: str, client_id: str) -> QuotaEntity:
    """The clients that a form names. InvalidRequestError when it names none.

    >>> entity_of("alice", "<default>")
    (('client-id', None), ('user', 'alice'))
    """
    named = ((CLIENT_ID, client_id), (USER, user))
    found = tuple((kind, None if name == OTHERS else name) for kind, name in named if name)
    if not found:
        raise InvalidRequestError(f"name a user, a client id or both; {OTHERS} stands for all others")
    return found


def _shown(name: str, value: float | None) -> str:
    return "" if value is None else f"{value:.15g} {QUOTA_UNITS.get(name, '')}".strip()


def _value_now(asker: Asker, entity: QuotaEntity, name: str) -> float | None:
    return asker.cluster.admin.describe_client_quotas().get(entity, {}).get(name)


def preview_set_quota(asker: Asker, user: str, client_id: str, quota: str, bound: float) -> Preview:
    _may_alter(asker)
    entity = entity_of(user, client_id)
    asker.cluster.admin.alter_client_quota(entity, {quota: bound}, validate_only=True)
    before = _value_now(asker, entity, quota)
    warning = "Clients beyond it are slowed, not refused. The most special quota of a client counts."
    return Preview([PreviewLine(f"{quota} of {_name(entity)}", _shown(quota, before), _shown(quota, bound))], [warning])


def _name(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {OTHERS if name is None else name}" for kind, name in entity)


def set_quota(asker: Asker, user: str, client_id: str, quota: str, bound: float) -> str:
    _may_alter(asker)
    entity = entity_of(user, client_id)
    asker.cluster.admin.alter_client_quota(entity, {quota: bound})
    return f"{quota} of {_name(entity)} is {_shown(quota, bound)}."


def preview_remove_quota(asker: Asker, user: str, client_id: str, quota: str) -> Preview:
    _may_alter(asker)
    entity = entity_of(user, client_id)
    before = _value_now(asker, entity, quota)
    if before is None:
        raise ResourceNotFoundError(f"{_name(entity)} has no {quota}")
    return Preview([PreviewLine(f"{quota} of {_name(entity)}", _shown(quota, before), "")])


def remove_quota(asker: Asker, user: str, client_id: str, quota: str) -> str:
    _may_alter(asker)
    entity = entity_of(user, client_id)
    asker.cluster.admin.alter_client_quota(entity, {quota: None})
    return f"{_name(entity)} has no {quota} any more."


def _access_page(_: Mapping[str, object]) -> str:
    return "/access"


_WHOSE = {
    "user": Parameter(str, f"the user's name, without User:; {OTHERS}: all others; empty: any user", ""),
    "client_id": Parameter(str, f"the client id; {OTHERS}: all others; empty: any", ""),
    "quota": Parameter(str, "what is bounded", "producer_byte_rate", KEYS),
}
CHANGES = (
    ClusterChange(
        "alter_brokers",
        "Alter a config of all brokers",
        "Alters a config while brokers run. It holds at once and outlives restarts, until the alteration is removed.",
        {
            "name": Parameter(str, "the config, as log.retention.ms"),
            "value": Parameter(str, "the new value", ""),
            "remove": Parameter(bool, "restore the value that brokers are started with", False),
        },
        preview_alter_brokers,
        alter_brokers,
        lambda _: "/brokers",
    ),
    ClusterChange(
        "set_quota",
        "Set a quota",
        "Bounds what clients of a user, of a client id, or of both may use of each broker.",
        {**_WHOSE, "bound": Parameter(float, "bytes/s; of request_percentage percent of a thread")},
        preview_set_quota,
        set_quota,
        _access_page,
    ),
    ClusterChange(
        "remove_quota",
        "Remove a quota",
        "Removes one bound of clients.",
        _WHOSE,
        preview_remove_quota,
        remove_quota,
        _access_page,
    ),
)
