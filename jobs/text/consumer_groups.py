"""What `consumer_groups` prints: Kafka's tables, byte for byte. Pure.

Each table begins with an empty line, columns are left-justified, and what is missing is `-`. Source: Kafka's
ConsumerGroupCommand and OffsetsUtils 4.3.1, compared with what they print.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stratalog.replication.requests.consumer_protocol import decode_assignment, partitions_by_topic
from stratalog.replication.requests.groups import DescribedGroup, DescribedGroupMember, ListedGroup
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

MISSING = "-"
CONSUMER = "consumer"
_COLUMN, _EPOCH, _SHARE = 15, 15, 20


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A partition of a group: where it is committed, where its log ends, and who has it; None where unknown."""

    partition: TopicPartition | None
    committed: int | None = None
    leader_epoch: int | None = None
    log_end: int | None = None
    consumer_id: str = MISSING
    host: str = MISSING
    client_id: str = MISSING

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end; None without either."""
        return None if self.committed is None or self.log_end is None else self.log_end - self.committed


def offset_rows(
    group: DescribedGroup,
    committed: Mapping[TopicPartition, tuple[int, int | None]],
    log_ends: Mapping[TopicPartition, int],
) -> list[OffsetRow]:
    """A row for each assigned or committed partition; members with most partitions first, then what nobody has.

    committed  offset and leader epoch of each partition
    """

    def row(partition: TopicPartition, *owner: str) -> OffsetRow:
        offset, epoch = committed.get(partition, (None, None))
        return OffsetRow(partition, offset, epoch, log_ends.get(partition), *owner)

    rows: list[OffsetRow] = []
    assigned: set[TopicPartition] = set()
    with_share = [(member, share) for member in group.members if (share := assignment(group, member))]
    for member, share in sorted(with_share, key=lambda each: -len(each[1])):
        assigned |= set(share)
        rows += [row(tp, member.member_id, member.client_host, member.client_id) for tp in sorted(share)]
    return rows + [row(partition) for partition in sorted(committed.keys() - assigned)]


def assignment(group: DescribedGroup, member: DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """A member's partitions; none of a group that is not a consumers' one."""
    return decode_assignment(member.member_assignment).partitions if group.protocol_type == CONSUMER else ()


def offsets_table(group_id: str, rows: Sequence[OffsetRow], *, verbose: bool) -> str:
    """`--describe --offsets`."""
    cells = [
        (
            group_id,
            each.partition.topic if each.partition else MISSING,
            _shown(each.partition.partition if each.partition else None),
            *([_shown(each.leader_epoch)] if verbose else []),
            _shown(each.committed),
            _shown(each.log_end),
            _shown(each.lag),
            each.consumer_id,
            each.host,
            each.client_id,
        )
        for each in rows
    ]
    epoch = ["LEADER-EPOCH"] if verbose else []
    names = ["GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    widths = [
        _wide(cells, 0),
        _wide(cells, 1),
        10,
        *[15 for _ in epoch],
        15,
        15,
        15,
        _wide(cells, -3),
        _wide(cells, -2),
    ]
    return _table([*names, "CLIENT-ID"], widths, cells)


def members_table(group: DescribedGroup, *, verbose: bool) -> str:
    """`--describe --members`. Epochs and target assignments are those of another kind of group, so they are missing."""
    has_instances = any(member.group_instance_id for member in group.members)
    cells: list[tuple[str, ...]] = []
    for member in group.members:
        share = assignment(group, member)
        instance = [member.group_instance_id or ""] if has_instances else []
        verbose_cells = [MISSING, _share(share), MISSING, MISSING] if verbose else []
        own = (group.group_id, member.member_id, *instance, member.client_host, member.client_id, str(len(share)))
        cells.append((*own, *verbose_cells))
    names = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if has_instances else []), "HOST", "CLIENT-ID"]
    widths = [_wide(cells, column) for column in range(len(names))]
    if has_instances:
        widths[2] = max(17, widths[2])
    names.append("#PARTITIONS")
    widths.append(15)
    if not verbose:
        return _table([*names, ""], widths, [(*each, "") for each in cells])
    names += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    share_width = max([_SHARE, *(len(each[-3]) for each in cells)])
    return _table(names, [*widths, _EPOCH, share_width, _EPOCH], cells, last=_SHARE)


def state_table(group: DescribedGroup, coordinator: int, *, verbose: bool) -> str:
    """`--describe --state`. There is no endpoint yet, so the coordinator has no host and port."""
    place = f"{MISSING}  ({coordinator})" if coordinator >= 0 else MISSING
    epochs = [MISSING, MISSING] if verbose else []
    strategy = group.protocol_data or MISSING
    cells = [(group.group_id, place, strategy, group.group_state, *epochs, str(len(group.members)))]
    names = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    widths = [_wide(cells, 0), max(25, len(place)), 20, 20]
    if verbose:
        names += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        widths += [15, 25]
    return _table([*names, "#MEMBERS"], widths, cells)


def state_remark(group: DescribedGroup) -> str | None:
    """What is said of a group's state on standard error; None for a stable one."""
    match group.group_state:
        case "Empty":
            return f"\nConsumer group '{group.group_id}' has no active members."
        case "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling":
            return f"\nWarning: Consumer group '{group.group_id}' is rebalancing."
        case _:
            return None


def list_lines(groups: Sequence[ListedGroup], *, types: bool, states: bool) -> list[str]:
    """`--list`: names alone, or a table with types and states."""
    if not types and not states:
        return [group.group_id for group in groups]
    width = max([15, *(len(group.group_id) for group in groups)]) + 10
    rows = [("GROUP", "TYPE", "STATE"), *((g.group_id, g.group_type.capitalize(), g.group_state) for g in groups)]
    return [
        f"{name:<{width}}" + (f" {kind:<20}" if types else "") + (f" {state:<20}" if states else "")
        for name, kind, state in rows
    ]


def reset_table(plans: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """`--reset-offsets`: the new offsets."""
    cells = [
        (group_id, partition.topic, str(partition.partition), str(offset))
        for group_id, plan in plans.items()
        for partition, offset in sorted(plan.items())
    ]
    widths = [_wide(cells, 0), _wide(cells, 1), 10]
    return _table(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], widths, cells)


def deleted_offsets_table(outcomes: Mapping[TopicPartition, StratalogError | None]) -> str:
    """`--delete-offsets`; partition -1: those of a topic that is not there."""
    cells = [
        (tp.topic, str(tp.partition) if tp.partition >= 0 else MISSING, _outcome(error))
        for tp, error in sorted(outcomes.items())
    ]
    return _table(["TOPIC", "PARTITION", "STATUS"], [_wide(cells, 0), 10], cells, last=15)


def deletion_lines(outcomes: Mapping[str, StratalogError | None]) -> list[str]:
    """`--delete`: what became of the groups."""
    done = ", ".join(f"'{group_id}'" for group_id, error in outcomes.items() if error is None)
    failed = [(group_id, error) for group_id, error in outcomes.items() if error is not None]
    if not failed:
        return [f"Deletion of requested consumer groups ({done}) was successful."]
    lines = ["", "Error: Deletion of some consumer groups failed:"]
    lines += [f"* Group '{group_id}' could not be deleted due to: {error.name}: {error}" for group_id, error in failed]
    return [*lines, "", f"These consumer groups were deleted successfully: {done}"] if done else lines


def _table(names: Sequence[str], widths: Sequence[int], cells: Iterable[Sequence[str]], last: int = 0) -> str:
    """`widths` of all columns but the last, whose width is `last`."""
    lines = [" ".join(f"{c:<{w}}" for c, w in zip(row, [*widths, last], strict=True)) for row in (names, *cells)]
    return "\n" + "\n".join(lines) + "\n"


def _wide(cells: Sequence[Sequence[str]], column: int) -> int:
    return max([_COLUMN, *(len(row[column]) for row in cells)])


def _shown(number: int | None) -> str:
    return MISSING if number is None else str(number)


def _share(partitions: Iterable[TopicPartition]) -> str:
    """`t:0,1;u:2`, or `-`."""
    by_topic = partitions_by_topic(sorted(partitions))
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items()) or MISSING


def _outcome(error: StratalogError | None) -> str:
    return "Successful" if error is None else f"Error: {error.name}: {error}"
