"""What `consumer_groups` prints: Kafka's tables, byte for byte. Pure.

Each table begins with an empty line, columns are left-justified, and `-` stands for a missing value. Source: Kafka's
ConsumerGroupCommand and OffsetsUtils 4.3.1, compared with what they print.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stratalog import StratalogError, TopicPartition
from stratalog.clients.admin.group_description import ConsumerGroupDescription
from stratalog.replication.requests.groups import ListedGroup
from stratalog.wire.consumer_protocol import partitions_by_topic

MISSING = "-"

Column = tuple[str, int, Sequence[object]]
"""Heading, width and cells; None is a missing one."""


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A partition of a group: its committed offset, the end of its log, and its member; None where unknown."""

    partition: TopicPartition
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
    group: ConsumerGroupDescription,
    committed: Mapping[TopicPartition, tuple[int, int | None]],
    log_ends: Mapping[TopicPartition, int],
) -> list[OffsetRow]:
    """A row for each assigned or committed partition; members with most partitions first, then unassigned partitions.

    committed  offset and leader epoch of each partition
    """

    def row(partition: TopicPartition, *owner: str) -> OffsetRow:
        offset, epoch = committed.get(partition, (None, None))
        return OffsetRow(partition, offset, epoch, log_ends.get(partition), *owner)

    rows: list[OffsetRow] = []
    assigned: set[TopicPartition] = set()
    for member in sorted(group.members, key=lambda each: -len(each.assignment)):
        assigned |= set(member.assignment)
        rows += [row(tp, member.member_id, member.host, member.client_id) for tp in sorted(member.assignment)]
    return rows + [row(partition) for partition in sorted(committed.keys() - assigned)]


def offsets_table(group_id: str, rows: Sequence[OffsetRow], *, verbose: bool) -> str:
    """`--describe --offsets`."""
    epoch = [("LEADER-EPOCH", 15, [each.leader_epoch for each in rows])] if verbose else []
    return _table(
        _wide("GROUP", [group_id for _ in rows]),
        _wide("TOPIC", [each.partition.topic for each in rows]),
        ("PARTITION", 10, [each.partition.partition for each in rows]),
        *epoch,
        ("CURRENT-OFFSET", 15, [each.committed for each in rows]),
        ("LOG-END-OFFSET", 15, [each.log_end for each in rows]),
        ("LAG", 15, [each.lag for each in rows]),
        _wide("CONSUMER-ID", [each.consumer_id for each in rows]),
        _wide("HOST", [each.host for each in rows]),
        ("CLIENT-ID", 0, [each.client_id for each in rows]),
    )


def members_table(group: ConsumerGroupDescription, *, verbose: bool) -> str:
    """`--describe --members`. Epochs and target assignments are the modern protocol's, and missing in a classic one."""
    members = group.members
    instances = [member.group_instance_id or "" for member in members]
    columns = [
        _wide("GROUP", [group.group_id for _ in members]),
        _wide("CONSUMER-ID", [member.member_id for member in members]),
        *([_wide("GROUP-INSTANCE-ID", instances, 17)] if any(instances) else []),
        _wide("HOST", [member.host for member in members]),
        _wide("CLIENT-ID", [member.client_id for member in members]),
        ("#PARTITIONS", 15, [len(member.assignment) for member in members]),
    ]
    if not verbose:
        return _table(*columns, ("", 0, ["" for _ in members]))
    return _table(
        *columns,
        ("CURRENT-EPOCH", 15, [member.member_epoch for member in members]),
        _wide("CURRENT-ASSIGNMENT", [_partitions_text(member.assignment) for member in members], 20),
        ("TARGET-EPOCH", 15, [group.target_assignment_epoch for _ in members]),
        _wide("TARGET-ASSIGNMENT", [_partitions_text(member.target_assignment or ()) for member in members], 20),
    )


def state_table(group: ConsumerGroupDescription, coordinator: int, *, verbose: bool) -> str:
    """`--describe --state`. There is no endpoint yet, so the coordinator has no host and port."""
    epochs = [
        ("GROUP-EPOCH", 15, [group.group_epoch]),
        ("TARGET-ASSIGNMENT-EPOCH", 25, [group.target_assignment_epoch]),
    ]
    return _table(
        _wide("GROUP", [group.group_id]),
        _wide("COORDINATOR (ID)", [f"{MISSING}  ({coordinator})" if coordinator >= 0 else None], 25),
        ("ASSIGNMENT-STRATEGY", 20, [group.partition_assignor or None]),
        ("STATE", 20, [group.group_state]),
        *(epochs if verbose else []),
        ("#MEMBERS", 0, [len(group.members)]),
    )


def state_remark(group: ConsumerGroupDescription) -> str | None:
    """The remark on a group's state for standard error; None for a stable one."""
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
    rows = [(group_id, *each) for group_id, plan in plans.items() for each in sorted(plan.items())]
    return _table(
        _wide("GROUP", [group_id for group_id, _, _ in rows]),
        _wide("TOPIC", [partition.topic for _, partition, _ in rows]),
        ("PARTITION", 10, [partition.partition for _, partition, _ in rows]),
        ("NEW-OFFSET", 0, [offset for _, _, offset in rows]),
    )


def deleted_offsets_table(outcomes: Mapping[TopicPartition, StratalogError | None]) -> str:
    """`--delete-offsets`; partition -1 stands for a topic that does not exist."""
    rows = sorted(outcomes.items(), key=lambda row: row[0])
    return _table(
        _wide("TOPIC", [partition.topic for partition, _ in rows]),
        ("PARTITION", 10, [partition.partition if partition.partition >= 0 else None for partition, _ in rows]),
        ("STATUS", 15, [f"Error: {error.name}: {error}" if error else "Successful" for _, error in rows]),
    )


def deletion_lines(outcomes: Mapping[str, StratalogError | None]) -> list[str]:
    """`--delete`: which groups were deleted, and why others were not."""
    done = ", ".join(f"'{group_id}'" for group_id, error in outcomes.items() if error is None)
    failed = [(group_id, error) for group_id, error in outcomes.items() if error is not None]
    if not failed:
        return [f"Deletion of requested consumer groups ({done}) was successful."]
    lines = ["", "Error: Deletion of some consumer groups failed:"]
    lines += [f"* Group '{group_id}' could not be deleted due to: {error.name}: {error}" for group_id, error in failed]
    return [*lines, "", f"These consumer groups were deleted successfully: {done}"] if done else lines


def _table(*columns: Column) -> str:
    lines = zip(
        *([f"{_shown(cell):<{width}}" for cell in (heading, *cells)] for heading, width, cells in columns), strict=True
    )
    return "\n" + "".join(f"{' '.join(line)}\n" for line in lines)


def _wide(heading: str, cells: Sequence[object], least: int = 15) -> Column:
    """A column as wide as its widest cell, and at least `least`."""
    return heading, max([least, *(len(_shown(cell)) for cell in cells)]), cells


def _shown(cell: object) -> str:
    return MISSING if cell is None else str(cell)


def _partitions_text(partitions: Iterable[TopicPartition]) -> str | None:
    """`t:0,1;u:2`; None for no partition."""
    by_topic = partitions_by_topic(sorted(partitions))
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items()) or None


def columns_text(columns: Mapping[str, Sequence[object]]) -> str:
    """Columns under their headings, each as wide as its widest cell and two blanks; `-` is a missing value.

    >>> columns_text({"GROUP": ["g", "billing"], "LAG": [0, None]})
    'GROUP    LAG\\ng        0\\nbilling  -\\n'
    """
    cells = {
        heading: [MISSING if each is None else str(each) for each in column] for heading, column in columns.items()
    }
    widths = [max(map(len, [heading, *column])) for heading, column in cells.items()]
    lines = zip(*([heading, *column] for heading, column in cells.items()), strict=True)
    padded = ("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded)


def listed_values(group: ListedGroup) -> dict[str, object]:
    """A group of a list, for `--output json`."""
    return {"group": group.group_id, "type": group.group_type, "state": group.group_state}


def state_values(group: ConsumerGroupDescription, coordinator: int) -> dict[str, object]:
    """A group's state, for `--output json`."""
    return {
        "group": group.group_id,
        "coordinator": coordinator,
        "assignor": group.partition_assignor,
        "state": group.group_state,
        "members": len(group.members),
    }


def member_values(group: ConsumerGroupDescription) -> list[dict[str, object]]:
    """A group's members, for `--output json`."""
    return [
        {
            "group": group.group_id,
            "consumerId": each.member_id,
            "host": each.host,
            "clientId": each.client_id,
            "groupInstanceId": each.group_instance_id,
            "assignment": [str(partition) for partition in each.assignment],
        }
        for each in group.members
    ]


def offset_values(group_id: str, row: OffsetRow) -> dict[str, object]:
    """A partition of a group, for `--output json`."""
    topic, partition = row.partition
    where = {"group": group_id, "topic": topic, "partition": partition}
    offsets = {"currentOffset": row.committed, "logEndOffset": row.log_end, "lag": row.lag}
    owner = {"consumerId": row.consumer_id, "host": row.host, "clientId": row.client_id}
    return {**where, **offsets, **{name: None if value == MISSING else value for name, value in owner.items()}}
