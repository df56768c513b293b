"""Offsets of groups are reset; groups are deleted. I/O: coordinators, leaders."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from stratalog.clients.admin.groups import GroupAdmin
from stratalog.clients.console.asker import WAIT_MS, Asker
from stratalog.clients.console.changes.change import ClusterChange, Preview, PreviewLine
from stratalog.clients.console.question import Parameter
from stratalog.clients.console.times import TIME_DOC, time_ms
from stratalog.clients.records import OffsetAndMetadata
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.storage.errors import GroupIdNotFoundError, InvalidRequestError
from stratalog.storage.records import TopicPartition

PLACES = ("earliest", "latest", "time", "offset", "shift")
LINES_MAX = 500
HAS_MEMBERS = "The group has members: stop them first, or the reset is refused."


def _group_page(values: Mapping[str, object]) -> str:
    return "/group?" + urlencode({"group": str(values["group"])})


def _target(asker: Asker, group: str, topic: str, partition: int) -> tuple[dict[TopicPartition, int | None], bool]:
    """The partitions to reset with the offsets committed now, and whether the group has members. Topics that the asker
    may not see are left out, and keep their offsets."""
    asker.check_group(group, Operation.READ)
    view = asker.cluster.view
    view.refresh()
    with asker.cluster.groups(WAIT_MS, changes=False) as asked:
        admin = GroupAdmin(asked, view)
        offsets = {named: held.offset for named, held in admin.committed(group).items()}
        has_members = bool(admin.describe_group(group).members)
    seen = set(asker.visible(ResourceType.TOPIC, {each.topic for each in offsets}))
    committed = {named: offset for named, offset in offsets.items() if named.topic in seen}
    if topic:
        asker.check_topic(topic, Operation.READ)
        wanted: list[TopicPartition] = view.image.partitions_of(topic)
    else:
        wanted = sorted(committed)
    for name in {each.topic for each in wanted}:
        asker.check_topic(name, Operation.READ)
    if partition >= 0:
        wanted = [each for each in wanted if each.partition == partition]
    if not wanted:
        what = f"the topic {topic}" if topic else f"group {group}: it has committed no offset, so give a topic"
        raise InvalidRequestError(f"there is no partition to reset in {what}")
    return {each: committed.get(each) for each in wanted}, has_members


def new_offsets(
    asker: Asker, before: Mapping[TopicPartition, int | None], to: str, at: str
) -> dict[TopicPartition, int]:
    """Where the partitions are to be read from. InvalidRequestError."""
    offsets = asker.cluster.view.offsets
    starts = offsets.beginning_offsets(before, WAIT_MS)
    ends = offsets.end_offsets(before, WAIT_MS)
    if to == "earliest":
        return starts
    if to == "latest":
        return ends
    if to == "time":
        when_ms = time_ms(at)
        found = {named: offsets.offset_for_timestamp(named, when_ms, WAIT_MS) for named in before}
        return {named: ends[named] if each is None else each.offset for named, each in found.items()}
    try:
        number = int(at)
    except ValueError as reason:
        raise InvalidRequestError(f"at is a number for {to}, not {at!r}") from reason
    wanted = {named: (committed or 0) + number if to == "shift" else number for named, committed in before.items()}
    return {named: max(starts[named], min(each, ends[named])) for named, each in wanted.items()}


def preview_reset(asker: Asker, group: str, to: str, at: str, topic: str, partition: int) -> Preview:
    before, has_members = _target(asker, group, topic, partition)
    after = new_offsets(asker, before, to, at)
    lines = []
    for named, committed in before.items():
        change = "" if committed is None else f" ({after[named] - committed:+d})"
        lines.append(PreviewLine(str(named), "" if committed is None else str(committed), f"{after[named]}{change}"))
    again = sum(max(0, committed - after[named]) for named, committed in before.items() if committed is not None)
    skipped = sum(max(0, after[named] - committed) for named, committed in before.items() if committed is not None)
    warnings = [HAS_MEMBERS] if has_members else []
    if again:
        warnings.append(f"{again} offsets will be read again.")
    if skipped:
        warnings.append(f"{skipped} offsets will not be read.")
    return Preview(lines[:LINES_MAX], warnings, max(0, len(lines) - LINES_MAX))


def reset(asker: Asker, group: str, to: str, at: str, topic: str, partition: int) -> str:
    before, has_members = _target(asker, group, topic, partition)
    if has_members:
        raise InvalidRequestError(f"group {group} has members, which would overwrite the offsets: stop them first")
    after = new_offsets(asker, before, to, at)
    with asker.cluster.groups(WAIT_MS, changes=True) as asked:
        admin = GroupAdmin(asked, asker.cluster.view)
        admin.alter_offsets(group, {named: OffsetAndMetadata(offset) for named, offset in after.items()})
    return f"Group {group} reads {len(after)} partitions from other offsets."


def preview_delete(asker: Asker, group: str) -> Preview:
    asker.check_group(group, Operation.DELETE)
    with asker.cluster.groups(WAIT_MS, changes=False) as asked:
        admin = GroupAdmin(asked, asker.cluster.view)
        committed = admin.committed(group)
        described = admin.describe_group(group)
    if described.error is not None and not committed:
        raise GroupIdNotFoundError(f"there is no group {group}")
    topics = asker.visible(ResourceType.TOPIC, sorted({each.topic for each in committed}))
    count = sum(each.topic in topics for each in committed)
    lines = [PreviewLine(f"group {group}", f"{count} committed offsets", "")]
    lines += [PreviewLine(f"its place in {topic}", "kept", "") for topic in topics]
    return Preview(lines[:LINES_MAX], [HAS_MEMBERS] if described.members else [])


def delete(asker: Asker, group: str) -> str:
    asker.check_group(group, Operation.DELETE)
    with asker.cluster.groups(WAIT_MS, changes=True) as asked:
        error = GroupAdmin(asked, asker.cluster.view).delete_groups([group])[group]
    if error is not None:
        raise error
    return f"Group {group} was deleted."


_GROUP = Parameter(str, "the group")
CHANGES = (
    ClusterChange(
        "reset_group",
        "Reset a group",
        "Moves the offsets from which a group without members reads on.",
        {
            "group": _GROUP,
            "to": Parameter(str, "where to", "earliest", PLACES),
            "at": Parameter(str, f"for time: {TIME_DOC}; for offset and shift: a number", ""),
            "topic": Parameter(str, "only this one; empty: all that the group has committed offsets of", ""),
            "partition": Parameter(int, "only this one; -1: all", -1),
        },
        preview_reset,
        reset,
        _group_page,
    ),
    ClusterChange(
        "delete_group",
        "Delete a group",
        "Forgets a group without members, with its offsets.",
        {"group": _GROUP},
        preview_delete,
        delete,
        lambda _: "/groups",
        is_final=True,
    ),
)
