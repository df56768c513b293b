"""`kafka-consumer-groups` for stratalog: list, describe, reset and delete groups; Kafka's flags and output.

I/O: `__consumer_offsets`, the metadata log and the leaders' progress objects, read from storage; what changes a group
goes through its coordinator, which has to run in this process. On a terminal that is never so until there is a Kafka
endpoint: everything but --execute, --delete and --delete-offsets works there.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stratalog.clients.admin.groups import GroupAdmin, LiveGroups, StoredGroups
from stratalog.clients.bootstrap import RunningCluster
from stratalog.clients.offset_spec import UNKNOWN_OFFSET, OffsetSpec
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.jobs.command.arguments import Parser, add_cluster_flags, client_properties, cluster_root
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError, complain, run
from stratalog.jobs.text.consumer_groups import (
    deleted_offsets_table,
    deletion_lines,
    list_lines,
    members_table,
    offset_rows,
    offsets_table,
    reset_table,
    state_remark,
    state_table,
)
from stratalog.jobs.text.offset_reset import (
    Bounds,
    Plan,
    parse_datetime_ms,
    parse_duration_ms,
    parse_plan,
    plan_csv,
    shifted,
    topic_argument,
    within,
)
from stratalog.replication.requests.groups import DescribedGroup
from stratalog.storage.errors import GroupIdNotFoundError, StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition

PURPOSE = (
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets."
)
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
  {prog} --root ROOT --list --state
  {prog} --root ROOT --describe --group billing
  {prog} --root ROOT --describe --all-groups --members --verbose
  {prog} --root ROOT --reset-offsets --group billing --topic events:0,1 --to-datetime 2019-10-07T00:00:00.000 --dry-run

Without a broker in this process groups are read as they are stored, and not changed: --execute, --delete and
--delete-offsets are refused until there is a Kafka endpoint. exit code: 0; 1 when something was refused or failed
"""
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
SCENARIOS = (
    "to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "from-file",
)  # fmt: skip
STATES = ("Stable", "Empty", "Assigning", "PreparingRebalance", "Reconciling", "CompletingRebalance", "Dead")
TYPES = ("Consumer", "Classic")
NO_ACTION = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
    "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are "
    "scripting this command and want to keep the current default behavior without prompting."
)
RESETTABLE = ("Empty", "Dead")


def parser() -> Parser:
    """All flags of kafka-consumer-groups."""
    made = Parser("consumer_groups", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog)
    add_cluster_flags(made)
    what = made.add_argument_group("what to do (one of)")
    for name, text in (
        ("list", "List all consumer groups."),
        ("describe", "Describe consumer group and list offset lag (number of messages not yet processed)."),
        ("delete", "Delete offsets and ownership information over the entire consumer group."),
        ("reset-offsets", "Reset offsets of groups without members; needs a scope and a scenario."),
        ("delete-offsets", "Delete offsets of one consumer group for some topics."),
    ):
        what.add_argument(f"--{name}", action="store_true", help=text)
    what.add_argument("--validate-regex", metavar="REGEX", help="Validate a regular expression, and nothing else.")
    which = made.add_argument_group("which groups and topics")
    which.add_argument(
        "--group", action="append", default=[], metavar="GROUP", help="The consumer group we wish to act on; may be "
        "repeated.",
    )  # fmt: skip
    which.add_argument("--all-groups", action="store_true", help="Apply to all consumer groups.")
    which.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; may "
        "be repeated.",
    )  # fmt: skip
    which.add_argument("--all-topics", action="store_true", help="All topics that the group has committed offsets of.")
    shown = made.add_argument_group("what to show of them")
    shown.add_argument("--offsets", action="store_true", help="With --describe, the default: partitions and their lag.")
    shown.add_argument("--members", action="store_true", help="With --describe: the members.")
    shown.add_argument(
        "--state", nargs="?", const="", metavar="STATES", help="With --describe: the state. With --list: the states, "
        "or only groups in some: stable,empty.",
    )  # fmt: skip
    shown.add_argument(
        "--type", nargs="?", const="", metavar="TYPES", help="With --list: the types, or only groups of some: "
        "classic,consumer.",
    )  # fmt: skip
    shown.add_argument("--verbose", action="store_true", help="With --describe: more columns.")
    shown.add_argument(
        "--timeout", type=int, default=30_000, metavar="MS", help="How long to wait for coordinators and leaders."
    )
    _add_reset_flags(made)
    return made


def _add_reset_flags(made: Parser) -> None:
    reset = made.add_argument_group("how to reset offsets")
    for name in ("to-earliest", "to-latest", "to-current"):
        reset.add_argument(f"--{name}", action="store_true", help=f"Reset offsets to {name[3:]} offset.")
    for name, kind, metavar, text in (
        ("to-offset", int, "OFFSET", "Reset offsets to a specific offset."),
        ("shift-by", int, "N", "Reset offsets shifting current offset by 'n', where 'n' can be positive or negative."),
        ("to-datetime", str, "DATETIME", "Reset offsets to offset from datetime. Format: 'YYYY-MM-DDThh:mm:ss.sss'"),
        ("by-duration", str, "DURATION", "Reset offsets to offset by duration from now. Format: 'PnDTnHnMnS'"),
        ("from-file", str, "FILE", "Reset offsets to values defined in CSV file."),
    ):
        reset.add_argument(f"--{name}", type=kind, metavar=metavar, help=text)
    reset.add_argument("--dry-run", action="store_true", help="Only show results; the default.")
    reset.add_argument("--execute", action="store_true", help="Do it.")
    reset.add_argument("--export", action="store_true", help="Print the results as CSV.")


def checked(given: argparse.Namespace) -> str:
    """The action that the flags ask for. UsageError in Kafka's words when they do not go together."""
    actions = [name for name in ACTIONS if getattr(given, name.replace("-", "_"))]
    if len(actions) != 1:
        all_actions = ", ".join(f"--{name}" for name in (*ACTIONS, "validate-regex"))
        raise UsageError(f"Command must include exactly one action: {all_actions}")
    action = actions[0]
    if action in ("describe", "delete", "reset-offsets") and not given.group and not given.all_groups:
        raise UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if given.group and given.all_groups:
        raise UsageError('Option "[group]" can\'t be used with option "[all-groups]"')
    if action == "list" and given.group:
        raise UsageError('Option "[group]" can\'t be used with option "[list]"')
    if action in ("list", "describe") and given.topic:
        raise UsageError(f'Option "[topic]" can\'t be used with option "[{action}]"')
    _check_details(given, action)
    return action


def _check_details(given: argparse.Namespace, action: str) -> None:
    only_described = {"members": given.members, "offsets": given.offsets, "verbose": given.verbose}
    stray = [name for name, is_given in only_described.items() if is_given and action != "describe"]
    if given.state is not None and action not in ("describe", "list"):
        stray.append("state")
    if given.type is not None and action != "list":
        stray.append("type")
    if stray:
        raise UsageError(f"Option(s) [{stray[0]}] are unavailable given other options on the command line")
    if action == "describe":
        _check_describe(given)
    if action == "delete" and given.topic:
        raise UsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if action == "delete-offsets" and not (given.group and given.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if action == "reset-offsets":
        _check_reset(given)


def _check_describe(given: argparse.Namespace) -> None:
    if sum((given.members, given.offsets, given.state is not None)) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if given.state:
        raise UsageError("Option [describe] does not take a value for [state]")


def _check_reset(given: argparse.Namespace) -> None:
    if given.dry_run and given.execute:
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    chosen = [name for name in SCENARIOS if _is_given(given, name)]
    if len(chosen) > 1:
        raise UsageError(f'Option "[{chosen[0]}]" can\'t be used with option "[{chosen[1]}]"')
    if not chosen:
        scenarios = ", ".join(f"[{name}]" for name in SCENARIOS)
        raise UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: [{scenarios}]")


def _is_given(given: argparse.Namespace, name: str) -> bool:
    value = getattr(given, name.replace("-", "_"))
    return value is not None and value is not False


def filter_words(text: str | None, what: str, known: Sequence[str]) -> tuple[str, ...]:
    """The words of `--state` or `--type`, spelled as known. UsageError for one that is not."""
    by_lower = {name.lower(): name for name in known}
    words = [word.strip().lower() for word in (text or "").split(",") if word.strip()]
    if not set(words) <= by_lower.keys():
        spelled = "types" if what == "type" else what  # Kafka's two messages are not alike
        raise UsageError(f"Invalid {spelled} list '{text}'. Valid {what}s are: {', '.join(known)}")
    return tuple(by_lower[word] for word in words)


class GroupCommand:
    """The actions. `is_live`: coordinators are asked, so groups can be changed."""

    def __init__(self, given: argparse.Namespace, admin: GroupAdmin, view: ClusterView) -> None:
        self._given = given
        self._admin = admin
        self._view = view

    def group_ids(self) -> list[str]:
        if self._given.all_groups:
            return [group.group_id for group in self._admin.list_groups()]
        return list(dict.fromkeys(self._given.group))

    def list_groups(self) -> None:
        states = filter_words(self._given.state, "state", STATES)
        types = filter_words(self._given.type, "type", TYPES)
        groups = self._admin.list_groups(states, [word.lower() for word in types])
        for line in list_lines(groups, types=self._given.type is not None, states=self._given.state is not None):
            print(line)

    def describe(self) -> None:
        for group_id in sorted(self.group_ids()):
            group = self._described(group_id)
            remark = state_remark(group)
            if remark is not None:
                complain(remark)
            print(self._description(group), end="", flush=True)

    def _described(self, group_id: str) -> DescribedGroup:
        group = self._admin.describe_group(group_id)
        if group.error is not None:
            raise group.error
        return group

    def _description(self, group: DescribedGroup) -> str:
        verbose = self._given.verbose
        if self._given.members:
            return members_table(group, verbose=verbose)
        if self._given.state is not None:
            return state_table(group, self._admin.coordinator(group.group_id), verbose=verbose)
        committed = {tp: (at.offset, at.leader_epoch) for tp, at in self._admin.committed(group.group_id).items()}
        rows = offset_rows(group, committed, {})
        ends = self._log_ends([row.partition for row in rows if row.partition is not None])
        rows = offset_rows(group, committed, ends)
        return offsets_table(group.group_id, rows, verbose=verbose) if rows else ""

    def _log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end; of a topic that was deleted, nowhere."""
        known = [tp for tp in partitions if tp in self._view.image.partitions]
        return self._view.end_offsets(known, self._given.timeout)

    # -- resetting ------------------------------------------------------------------------------------------

    def reset_offsets(self) -> None:
        if not self._given.dry_run and not self._given.execute and not self._given.export:
            complain(NO_ACTION)
        group_ids = self.group_ids()
        plans: dict[str, Plan] = {}
        for group_id in group_ids:
            plans[group_id] = self._plan_for(group_id, group_ids)
            if self._given.execute and plans[group_id]:
                offsets = {tp: OffsetAndMetadata(offset) for tp, offset in plans[group_id].items()}
                self._admin.alter_offsets(group_id, offsets)
        if self._given.export:
            print(plan_csv(plans, one_group=len(self._given.group) == 1))
        else:
            print(reset_table(plans), end="")

    def _plan_for(self, group_id: str, group_ids: Sequence[str]) -> Plan:
        group = self._admin.describe_group(group_id)
        if group.error is not None and not isinstance(group.error, GroupIdNotFoundError):
            raise group.error
        if group.error is None and group.group_state not in RESETTABLE:
            print(
                f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {group.group_state}."
            )
            return {}
        if self._given.from_file is not None:
            text = Path(self._given.from_file).read_text(encoding="utf-8")
            wanted = parse_plan(text, group_ids).get(group_id)
            if wanted is None:
                print(f"\nError: No reset plan for group {group_id} found")
                return {}
            return self._within(wanted)
        return self._new_offsets(self._scope(group_id), group_id)

    def _scope(self, group_id: str) -> list[TopicPartition]:
        if self._given.all_topics:
            return sorted(self._admin.committed(group_id))
        if not self._given.topic:
            raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
        return self._partitions(self._given.topic)

    def _partitions(self, arguments: Iterable[str]) -> list[TopicPartition]:
        """What `--topic` names. UnknownTopicOrPartitionError for what is not there."""
        found: dict[TopicPartition, None] = {}
        for argument in arguments:
            topic, numbers = topic_argument(argument)
            there = self._view.partitions(topic)
            named = list(there) if numbers is None else [TopicPartition(topic, number) for number in numbers]
            missing = [str(tp) for tp in named if tp not in there]
            if missing:
                raise UnknownTopicOrPartitionError(f'The partitions "{",".join(missing)}" do not exist')
            found |= dict.fromkeys(named)
        return sorted(found)

    def _new_offsets(self, partitions: list[TopicPartition], group_id: str) -> Plan:
        given, wait_ms = self._given, self._given.timeout
        if given.to_earliest:
            return self._view.beginning_offsets(partitions, wait_ms)
        if given.to_latest:
            return self._view.end_offsets(partitions, wait_ms)
        if given.to_offset is not None:
            return self._within(dict.fromkeys(partitions, given.to_offset))
        if given.to_datetime is not None:
            return self._at_time(partitions, parse_datetime_ms(given.to_datetime))
        if given.by_duration is not None:
            return self._at_time(partitions, self._view.clock.wall_ms() - parse_duration_ms(given.by_duration))
        committed = {tp: at.offset for tp, at in self._admin.committed(group_id).items()}
        if given.shift_by is not None:
            return self._within(shifted(partitions, committed, given.shift_by))
        current = {tp: committed[tp] for tp in partitions if tp in committed}
        return current | self._view.end_offsets([tp for tp in partitions if tp not in committed], wait_ms)

    def _at_time(self, partitions: list[TopicPartition], timestamp_ms: int) -> Plan:
        plan: Plan = {}
        for partition in partitions:
            listed = self._view.list_offset(partition, OffsetSpec(max(0, timestamp_ms)), self._given.timeout)
            if listed.offset == UNKNOWN_OFFSET:
                print(
                    f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. "
                    "Falling back to latest known offset."
                )
                plan |= self._view.end_offsets([partition], self._given.timeout)
            else:
                plan[partition] = listed.offset
        return plan

    def _within(self, wanted: Mapping[TopicPartition, int]) -> Plan:
        starts = self._view.beginning_offsets(wanted, self._given.timeout)
        ends = self._view.end_offsets(wanted, self._given.timeout)
        plan, warnings = within(wanted, {tp: Bounds(starts[tp], ends[tp]) for tp in wanted})
        for warning in warnings:
            complain(f"WARN {warning}")
        return plan

    # -- deleting -------------------------------------------------------------------------------------------

    def delete(self) -> int:
        outcomes = self._admin.delete_groups(self.group_ids())
        print("\n".join(deletion_lines(outcomes)))
        return FAILED if any(outcomes.values()) else DONE

    def delete_offsets(self) -> int:
        group_id, outcomes = self._given.group[0], dict[TopicPartition, StratalogError | None]()
        partitions: list[TopicPartition] = []
        for argument in self._given.topic:
            try:
                topic, numbers = topic_argument(argument)
                named = None if numbers is None else [TopicPartition(topic, number) for number in numbers]
                partitions += self._view.partitions(topic) if named is None else named
            except UnknownTopicOrPartitionError as reason:
                outcomes[TopicPartition(topic, -1)] = reason
        error, rows = self._admin.delete_offsets(group_id, partitions)
        outcomes |= rows if error is None else dict.fromkeys(partitions, error)
        if error is not None:
            print(f"\nError: {error}")
        elif any(rows.values()):
            print("\nError: Encountered some partition-level error, see the follow-up details.")
        else:
            print(f"Request succeeded for deleting offsets from group {group_id}.")
        print(deleted_offsets_table(outcomes), end="")
        return FAILED if any(outcomes.values()) else DONE


def consumer_groups(arguments: Sequence[str] | None, cluster: RunningCluster | None = None) -> int:
    """The tool without its terminal; with a running cluster of this process, groups are asked for and changed there."""
    given = parser().parse(arguments)
    if given.validate_regex is not None:
        return _validate_regex(given.validate_regex)
    action = checked(given)
    client_properties(given.command_config)
    root = cluster.root if cluster is not None else cluster_root(given)
    view = ClusterView(root, timeout_ms=given.timeout)
    groups = LiveGroups(cluster, view.clock, given.timeout) if cluster is not None else StoredGroups(view)
    return perform(GroupCommand(given, GroupAdmin(groups, view), view), action)


def perform(command: GroupCommand, action: str) -> int:
    """Do it; the exit code. What a coordinator or leader refuses is printed in Kafka's words."""
    try:
        match action:
            case "list":
                command.list_groups()
            case "describe":
                command.describe()
            case "reset-offsets":
                command.reset_offsets()
            case "delete":
                return command.delete()
            case _:
                return command.delete_offsets()
    except StratalogError as reason:
        print(f"\nError: Executing consumer group command failed due to {reason.name}: {reason}")
        return FAILED
    return DONE


def _validate_regex(expression: str) -> int:
    try:
        re.compile(expression)
    except re.error as reason:
        print(f"The regular expression `{expression}` is invalid: {reason}.")
        return FAILED
    print(f"The regular expression `{expression}` is valid.")
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    return run(lambda: consumer_groups(arguments))


if __name__ == "__main__":
    sys.exit(main())
