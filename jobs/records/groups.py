"""`kafka-consumer-groups` for stratalog: list, describe, reset and delete groups; Kafka's flags and output.

I/O: `__consumer_offsets`, the metadata log and the leaders' progress objects, read from storage, or brokers; a group is
changed by its coordinator, which is called, in this process with `main.call(arguments, cluster)`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from stratalog import (
    ClusterView,
    GroupAdmin,
    LiveGroups,
    OffsetAndMetadata,
    OffsetSpec,
    StratalogError,
    TopicPartition,
)
from stratalog.clients.admin.group_description import ConsumerGroupDescription
from stratalog.clients.client_view import ClientView
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.output import JSON, OUTPUT, print_rows
from stratalog.jobs.command.properties import read_text
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError, complain
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.jobs.text import consumer_groups as tables
from stratalog.jobs.text import offset_reset
from stratalog.jobs.text.offset_reset import Plan
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.offset_spec import UNKNOWN_OFFSET
from stratalog.storage.errors import GroupIdNotFoundError, UnknownTopicOrPartitionError

PURPOSE = (
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets."
)
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --list --state
  {prog} --root ROOT --describe --group billing
  {prog} --root ROOT --describe --all-groups --members --verbose
  {prog} --root ROOT --reset-offsets --group billing --topic events:0,1 --to-datetime 2019-10-07T00:00:00.000 --dry-run

With --root groups are read as they are stored; --execute, --delete and --delete-offsets call their coordinators. With
--bootstrap-server coordinators are called for all. exit code: 0; 1 when something was refused or failed
"""
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
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

# fmt: off
FLAGS = {**CLUSTER, "what to do (one of)": (
    switch("list", "List all consumer groups."),
    switch("describe", "Describe consumer group and list offset lag (number of messages not yet processed)."),
    switch("delete", "Delete offsets and ownership information over the entire consumer group."),
    switch("reset-offsets", "Reset offsets of groups without members; needs a scope and a scenario."),
    switch("delete-offsets", "Delete offsets of one consumer group for some topics."),
    Flag("validate-regex", "REGEX", "Validate a regular expression, and nothing else."),
), "which groups and topics": (
    Flag("group", "GROUP", "The consumer group we wish to act on; may be repeated.", is_repeated=True, letter="g"),
    switch("all-groups", "Apply to all consumer groups."),
    Flag("topic", "TOPIC[:0,1]", "A topic, or some of its partitions; may be repeated.", is_repeated=True, letter="t"),
    switch("all-topics", "All topics that the group has committed offsets of."),
), "what to show of them": (
    switch("offsets", "With --describe, the default: partitions and their lag.", "describe"),
    switch("members", "With --describe: the members.", "describe"),
    Flag("state", "STATES", "With --describe: the state. With --list: the states, or only groups in some: "
         "stable,empty.", bare="", only_with="describe list"),
    Flag("type", "TYPES", "With --list: the types, or only groups of some: classic,consumer.", bare="",
         only_with="list"),
    switch("verbose", "With --describe: more columns.", "describe"),
    OUTPUT,
    Flag("timeout", "MS", "How long to wait for coordinators and leaders.", int, 30_000),
), "how to reset offsets": (
    *(switch(f"to-{place}", f"Reset offsets to {place} offset.") for place in ("earliest", "latest", "current")),
    Flag("to-offset", "OFFSET", "Reset offsets to a specific offset.", int),
    Flag("shift-by", "N", "Reset offsets shifting current offset by 'n', where 'n' can be positive or negative.", int),
    Flag("to-datetime", "DATETIME", "Reset offsets to offset from datetime. Format: 'YYYY-MM-DDThh:mm:ss.sss'"),
    Flag("by-duration", "DURATION", "Reset offsets to offset by duration from now. Format: 'PnDTnHnMnS'"),
    Flag("from-file", "FILE", "Reset offsets to values defined in CSV file."),
    switch("dry-run", "Only show results; the default."),
    switch("execute", "Do it."),
    switch("export", "Print the results as CSV."),
)}
RULES = (
    *Rule.exactly_one(ACTIONS, f"Command must include exactly one action: --{', --'.join(ACTIONS)}"),
    *(Rule(f"Option [{action}] takes one of these options: [group], [all-groups]", action, "group all-groups")
      for action in ("describe", "delete", "reset-offsets")),
    *Rule.not_with("all-groups", "group"),
    *Rule.not_with("list", "group topic"),
    *Rule.not_with("describe", "topic"),
    *Rule.by_action(FLAGS, ACTIONS, "Option(s) [{}] are unavailable given other options on the command line"),
    *Rule.at_most_one(("members", "offsets", "state"),
                      "Option [describe] takes at most one of these options: [members], [offsets], [state]"),
    Rule("The consumer does not support topic-specific offset deletion from a consumer group.", "delete topic"),
    *Rule.required("group topic", "delete-offsets",
                   "Option [delete-offsets] takes the following options: [group], [topic]"),
    Rule("Option [reset-offsets] only accepts one of [execute] and [dry-run]", "reset-offsets dry-run execute"),
    *(Rule(rule.message, f"reset-offsets {rule.given}") for rule in Rule.at_most_one(SCENARIOS)),
    Rule(f"Option '[reset-offsets]' requires one of the following scenarios: [[{'], ['.join(SCENARIOS)}]]",
         "reset-offsets", " ".join(SCENARIOS)),
)
# fmt: on


def filter_words(text: str | None, what: str, known: Sequence[str]) -> tuple[str, ...]:
    """The words of `--state` or `--type`, spelled as known. UsageError for one that is not."""
    by_lower = {name.lower(): name for name in known}
    words = [word.strip().lower() for word in (text or "").split(",") if word.strip()]
    if not set(words) <= by_lower.keys():
        spelled = "types" if what == "type" else what  # Kafka's two messages are not alike
        raise UsageError(f"Invalid {spelled} list '{text}'. Valid {what}s are: {', '.join(known)}")
    return tuple(by_lower[word] for word in words)


class GroupCommand:
    """The actions on groups, each printing what Kafka's tool prints."""

    def __init__(self, given: argparse.Namespace, admin: GroupAdmin, view: ClientView) -> None:
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
        if self._given.output == JSON:
            print_rows(tables.listed_values(each) for each in groups)
            return
        for line in tables.list_lines(groups, types=self._given.type is not None, states=self._given.state is not None):
            print(line)

    def describe(self) -> None:
        for group_id in sorted(self.group_ids()):
            group = self._admin.describe_group(group_id)
            if group.error is not None:
                raise group.error
            if self._given.output == JSON:
                print_rows(self._values(group))
                continue
            remark = tables.state_remark(group)
            if remark is not None:
                complain(remark)
            print(self._description(group), end="", flush=True)

    def _description(self, group: ConsumerGroupDescription) -> str:
        verbose = self._given.verbose
        if self._given.members:
            return tables.members_table(group, verbose=verbose)
        if self._given.state is not None:
            return tables.state_table(group, self._admin.coordinator(group.group_id), verbose=verbose)
        rows = self._offset_rows(group)
        return tables.offsets_table(group.group_id, rows, verbose=verbose) if rows else ""

    def _offset_rows(self, group: ConsumerGroupDescription) -> list[tables.OffsetRow]:
        committed = {tp: (at.offset, at.leader_epoch) for tp, at in self._admin.committed(group.group_id).items()}
        rows = tables.offset_rows(group, committed, {})
        # The partitions of a deleted topic have no end offsets.
        known = [row.partition for row in rows if row.partition in self._view.image.partitions]
        return tables.offset_rows(group, committed, self._view.offsets.end_offsets(known, self._given.timeout))

    def _values(self, group: ConsumerGroupDescription) -> Iterable[Mapping[str, object]]:
        """A group for `--output json`: its members, its state, or its partitions."""
        if self._given.members:
            return tables.member_values(group)
        if self._given.state is not None:
            return [tables.state_values(group, self._admin.coordinator(group.group_id))]
        return [tables.offset_values(group.group_id, row) for row in self._offset_rows(group)]

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
            print(offset_reset.plan_csv(plans, one_group=len(self._given.group) == 1))
        else:
            print(tables.reset_table(plans), end="")

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
            wanted = offset_reset.parse_plan(read_text(self._given.from_file), group_ids).get(group_id)
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
        """The partitions that `--topic` names. UnknownTopicOrPartitionError for one that does not exist."""
        found: dict[TopicPartition, None] = {}
        for argument in arguments:
            topic, numbers = offset_reset.topic_argument(argument)
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
            return self._view.offsets.beginning_offsets(partitions, wait_ms)
        if given.to_latest:
            return self._view.offsets.end_offsets(partitions, wait_ms)
        if given.to_offset is not None:
            return self._within(dict.fromkeys(partitions, given.to_offset))
        if given.to_datetime is not None:
            return self._at_time(partitions, offset_reset.parse_datetime_ms(given.to_datetime))
        if given.by_duration is not None:
            duration_ms = offset_reset.parse_duration_ms(given.by_duration)
            return self._at_time(partitions, self._view.clock.wall_ms() - duration_ms)
        committed = {tp: at.offset for tp, at in self._admin.committed(group_id).items()}
        if given.shift_by is not None:
            return self._within(offset_reset.shifted(partitions, committed, given.shift_by))
        current = {tp: committed[tp] for tp in partitions if tp in committed}
        return current | self._view.offsets.end_offsets([tp for tp in partitions if tp not in committed], wait_ms)

    def _at_time(self, partitions: list[TopicPartition], timestamp_ms: int) -> Plan:
        plan: Plan = {}
        for partition in partitions:
            listed = self._view.offsets.list_offset(partition, OffsetSpec(max(0, timestamp_ms)), self._given.timeout)
            if listed.offset == UNKNOWN_OFFSET:
                print(
                    f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. "
                    "Falling back to latest known offset."
                )
                plan |= self._view.offsets.end_offsets([partition], self._given.timeout)
            else:
                plan[partition] = listed.offset
        return plan

    def _within(self, wanted: Mapping[TopicPartition, int]) -> Plan:
        starts = self._view.offsets.beginning_offsets(wanted, self._given.timeout)
        ends = self._view.offsets.end_offsets(wanted, self._given.timeout)
        plan, warnings = offset_reset.within(wanted, starts, ends)
        for warning in warnings:
            complain(f"WARN {warning}")
        return plan

    # -- deleting -------------------------------------------------------------------------------------------

    def delete(self) -> int:
        outcomes = self._admin.delete_groups(self.group_ids())
        print("\n".join(tables.deletion_lines(outcomes)))
        return FAILED if any(outcomes.values()) else DONE

    def delete_offsets(self) -> int:
        group_id, outcomes = self._given.group[0], dict[TopicPartition, StratalogError | None]()
        partitions: list[TopicPartition] = []
        for argument in self._given.topic:
            try:
                topic, numbers = offset_reset.topic_argument(argument)
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
        print(tables.deleted_offsets_table(outcomes), end="")
        return FAILED if any(outcomes.values()) else DONE


def consumer_groups(given: argparse.Namespace, cluster: RunningCluster | None = None) -> int:
    """Do what the flags ask for; the exit code. With a running cluster of this process its coordinators are asked."""
    if given.action == "validate-regex":
        return _validate_regex(given.validate_regex)
    if given.action == "describe" and given.state:
        raise UsageError("Option [describe] does not take a value for [state]")
    if cluster is not None:
        view = ClusterView(cluster.root, timeout_ms=given.timeout)
        live = LiveGroups(cluster, view.clock, given.timeout)
        return perform(GroupCommand(given, GroupAdmin(live, view), view), given.action)
    changes = given.action in ("delete", "delete-offsets") or given.execute
    with (
        open_cluster(given, wait_ms=given.timeout) as opened,
        opened.groups(given.timeout, changes=changes) as asked,
    ):
        return perform(GroupCommand(given, GroupAdmin(asked, opened.view), opened.view), given.action)


def perform(command: GroupCommand, action: str) -> int:
    """Perform the action; the exit code. A refusal by a coordinator or leader is printed in Kafka's words."""
    actions: dict[str, Callable[[], int | None]] = {
        "list": command.list_groups,
        "describe": command.describe,
        "reset-offsets": command.reset_offsets,
        "delete": command.delete,
        "delete-offsets": command.delete_offsets,
    }
    try:
        return actions[action]() or DONE
    except StratalogError as reason:
        print(f"\nError: Executing consumer group command failed due to {reason.name}: {reason}")
        return FAILED


def _validate_regex(expression: str) -> int:
    try:
        re.compile(expression)
    except re.error as reason:
        print(f"The regular expression `{expression}` is invalid: {reason}.")
        return FAILED
    print(f"The regular expression `{expression}` is valid.")
    return DONE


main = Command("groups", PURPOSE, EPILOG, FLAGS, consumer_groups, RULES, Words(ACTIONS, "list", ("group",)))
