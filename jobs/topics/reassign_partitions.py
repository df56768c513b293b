"""`kafka-reassign-partitions` for stratalog: move partitions between brokers; Kafka's flags, files and output.

I/O: JSON files, and the metadata log or brokers through an admin client. The brokers copy; this tool only requests it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Collection, Mapping, Sequence

from stratalog import PartitionReassignment, StratalogError, TopicPartition
from stratalog.clients.admin.cluster_admin import ClusterAdmin
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.output import JSON, OUTPUT, print_rows
from stratalog.jobs.command.progress import progress
from stratalog.jobs.command.properties import read_text
from stratalog.jobs.command.terminal import DONE, FAILED, UsageError
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.jobs.text import reassignment as text
from stratalog.replication.controller.reassignment import propose_assignment
from stratalog.storage.errors import UnknownTopicOrPartitionError

ACTIONS = ("generate", "execute", "verify", "cancel", "list")
CANNOT_EXECUTE = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create "
    "a new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
POLL_S = 0.5
VERIFY_PERIODICALLY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
PURPOSE = "This tool helps to move topic partitions between replicas."
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --generate --topics-to-move-json-file topics.json --broker-list 4,5,6
  {prog} --root ROOT --execute --reassignment-json-file plan.json --throttle 50000000
  {prog} --root ROOT --verify --reassignment-json-file plan.json
  {prog} --root ROOT --cancel --reassignment-json-file plan.json
  {prog} --root ROOT --list
where topics.json holds {"topics": [{"topic": "foo"}], "version": 1} and plan.json what --generate proposed.

exit code: 0 when it was done, 1 when not
"""
# fmt: off
FLAGS = {**CLUSTER, "what to do, exactly one of": (
    switch("generate", "Generate a candidate partition reassignment configuration. Note that this only generates a "
           "candidate assignment, it does not execute it."),
    switch("execute", "Kick off the reassignment as specified by the --reassignment-json-file option."),
    switch("verify", "Verify if the reassignment completed as specified by the --reassignment-json-file option. If "
           "there is a throttle engaged for the replicas specified, and the rebalance has completed, the throttle will "
           "be removed."),
    switch("cancel", "Cancel an active reassignment."),
    switch("list", "List all active partition reassignments."),
), "with which partitions and brokers": (
    Flag("reassignment-json-file", "FILE", "The JSON file with the partition reassignment configuration: "
         '{"partitions": [{"topic": "foo", "partition": 1, "replicas": [1,2,3], "log_dirs": ["any","any","any"]}], '
         '"version": 1}. "log_dirs" is optional; a broker has one log directory, so only "any" is possible.',
         only_with="execute verify cancel", required_with="execute verify cancel"),
    Flag("topics-to-move-json-file", "FILE", "Generate a reassignment configuration to move the partitions of the "
         "specified topics to the list of brokers specified by the --broker-list option: "
         '{"topics": [{"topic": "foo"},{"topic": "foo1"}], "version": 1}',
         only_with="generate", required_with="generate"),
    Flag("broker-list", "IDS", "The list of brokers to which the partitions need to be reassigned in the form "
         '"0,1,2". This is required if --topics-to-move-json-file is used to generate reassignment configuration.',
         only_with="generate", required_with="generate"),
    switch("disable-rack-aware", "Disable rack aware replica assignment.", "generate"),
), "how": (
    OUTPUT,
    Flag("throttle", "BYTES", "The movement of partitions between brokers will be throttled to this value (bytes/sec). "
         "It can be altered by resubmitting the current reassignment along with the --additional flag. The throttle "
         "rate should be at least 1 KB/s.", int, only_with="execute"),
    switch("additional", "Execute this reassignment in addition to any other ongoing ones. This option can also be "
           "used to change the throttle of an ongoing reassignment.", "execute"),
    switch("preserve-throttles", "Do not modify broker or topic throttles.", "verify cancel"),
    switch("wait", "With --verify: wait until the reassignment is complete. Ours.", "verify"),
    switch("disallow-replication-factor-change", "Denies the ability to change a partition's replication factor as "
           "part of this reassignment.", "execute"),
    *(Flag(name, unit, "Of moves between the log directories of a broker. Accepted for Kafka's sake, without effect: a "
           "broker has one.", int, only_with=actions) for name, unit, actions in (
        ("replica-alter-log-dirs-throttle", "BYTES", "execute"),
        ("timeout", "MS", "execute cancel"),
    )),
)}
RULES = (
    *Rule.exactly_one(ACTIONS, f"Command must include exactly one action: --{', --'.join(ACTIONS)}"),
    *Rule.by_action(FLAGS, ACTIONS, 'Option "[{}]" can\'t be used with action "[{}]"'),
)
# fmt: on


class TerseError(Exception):
    """Why the tool could not do what was asked; Kafka's tool prints it on standard output."""


class ReassignCommand:
    """The actions on one cluster, each printing what Kafka's tool prints."""

    def __init__(self, given: argparse.Namespace, admin: ClusterAdmin, rng: random.Random) -> None:
        self._given = given
        self._admin = admin
        self._rng = rng

    def run(self, action: str) -> None:
        """Perform one of `ACTIONS`."""
        {
            "generate": self.generate,
            "execute": self.execute,
            "verify": self.verify,
            "cancel": self.cancel,
            "list": self.list_all,
        }[action]()

    def list_all(self) -> None:
        under_way = self._admin.list_partition_reassignments()
        if self._given.output == JSON:
            print_rows(_values(named, each) for named, each in sorted(under_way.items()))
        else:
            print(text.under_way_text(under_way))

    def generate(self) -> None:
        given = self._given
        brokers = text.parse_brokers(given.broker_list)
        current = self._assignment_of(text.parse_topics(read_text(given.topics_to_move_json_file)))
        racks = self._racks(brokers, is_rack_aware=not given.disable_rack_aware)
        start_index, shift = self._rng.randrange(1 << 16), self._rng.randrange(1 << 16)
        proposed = propose_assignment(current, racks, start_index=start_index, shift=shift)
        print(f"Current partition replica assignment\n{text.assignment_json(current)}\n")
        print(f"Proposed partition reassignment configuration\n{text.assignment_json(proposed)}")

    def _assignment_of(self, topics: Collection[str]) -> dict[TopicPartition, tuple[int, ...]]:
        known = self._admin.list_topics()
        for topic in topics:
            if topic not in known:
                raise UnknownTopicOrPartitionError(f"Topic {topic} not found.")
        described = self._admin.describe_topics(topics).values()
        return {state.topic_partition: state.replicas for topic in described for state in topic.partitions}

    def _racks(self, brokers: Collection[int], *, is_rack_aware: bool) -> dict[int, str | None]:
        live = self._live_brokers()
        racks = {broker: live[broker] if is_rack_aware else None for broker in brokers if broker in live}
        if len({rack is None for rack in racks.values()}) > 1:
            raise UsageError(
                "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
                "assignment without rack information."
            )
        return racks

    def _live_brokers(self) -> dict[int, str | None]:
        return {b.broker_id: b.rack for b in self._admin.describe_cluster().brokers if not b.fenced}

    def execute(self) -> None:
        given = self._given
        plan = text.parse_plan(read_text(given.reassignment_json_file))
        if self._admin.list_partition_reassignments() and not given.additional:
            raise TerseError(CANNOT_EXECUTE)
        live = self._live_brokers()
        for broker in {broker: None for replicas in plan.values() for broker in replicas}:
            if broker not in live:
                raise UsageError(f"Unknown broker id {broker}")
        print(text.rollback_text(self._current_of(plan)))
        if given.throttle is not None and given.throttle >= 0:
            print(VERIFY_PERIODICALLY)
            self._admin.throttle(plan, given.throttle)
            print(f"The inter-broker throttle limit was set to {given.throttle} B/s")
        allow_change = not given.disallow_replication_factor_change
        answers = self._admin.alter_partition_reassignments(plan, allow_replication_factor_change=allow_change)
        _check_answers(answers, "Error reassigning partition(s):")
        print(f"Successfully started {text.plural('partition reassignment', len(plan))} for {_joined(plan)}")

    def _current_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
        known = self._assignment_of(list(dict.fromkeys(named.topic for named in partitions)))
        missing = [str(named) for named in partitions if named not in known]
        if missing:
            raise UnknownTopicOrPartitionError(f"Unable to find partition: {', '.join(missing)}")
        return {named: known[named] for named in partitions}

    def _await(self, partitions: Collection[TopicPartition]) -> None:
        """Until none of these is reassigned any more."""
        with progress("partitions reassigned", len(partitions)) as bar:
            while under_way := set(self._admin.list_partition_reassignments()) & set(partitions):
                bar.set(len(partitions) - len(under_way))
                time.sleep(POLL_S)

    def verify(self) -> None:
        rows = text.parse_reassignment(read_text(self._given.reassignment_json_file))
        if self._given.wait:
            self._await([named for named, _ in rows])
        under_way = self._admin.list_partition_reassignments()
        there = set(self._admin.list_topics())
        current = self._assignment_of([topic for topic in {named.topic: 0 for named, _ in rows} if topic in there])
        states = {
            named: text.ReassignmentState(current.get(named, ()), target, named not in under_way)
            for named, target in rows
        }
        print(text.states_text(states) + "\n")
        if not under_way and not self._given.preserve_throttles:
            self._clear_throttles(rows)

    def cancel(self) -> None:
        rows = text.parse_reassignment(read_text(self._given.reassignment_json_file))
        under_way = self._admin.list_partition_reassignments(dict(rows))
        if under_way:
            answers = self._admin.alter_partition_reassignments(dict.fromkeys(under_way))
            failed = sum(answer is not None for answer in answers.values())
            _check_answers(answers, f"Error cancelling {text.plural('partition reassignment', failed)} for:")
            what = text.plural("partition reassignment", len(under_way))
            print(f"Successfully cancelled {what} for: {_joined(under_way)}")
        else:
            print("None of the specified partition reassignments are active.")
        print("None of the specified partition moves are active.")
        if not self._given.preserve_throttles:
            self._clear_throttles(rows)

    def _clear_throttles(self, rows: Sequence[tuple[TopicPartition, tuple[int, ...]]]) -> None:
        brokers = sorted({*self._live_brokers(), *(broker for _, replicas in rows for broker in replicas)})
        topics = sorted({named.topic for named, _ in rows})
        listed = ",".join(map(str, brokers))
        print(f"Clearing broker-level throttles on {text.plural('broker', len(brokers))} {listed}")
        print(f"Clearing topic-level throttles on {text.plural('topic', len(topics))} {','.join(topics)}")
        self._admin.unthrottle(topics)


def _values(named: TopicPartition, moving: PartitionReassignment) -> dict[str, object]:
    """One reassignment for `--output json`."""
    about = {"topic": named.topic, "partition": named.partition, "replicas": moving.replicas}
    return {**about, "addingReplicas": moving.adding, "removingReplicas": moving.removing}


def _check_answers(answers: Mapping[TopicPartition, StratalogError | None], what: str) -> None:
    errors = [f"{named}: {answers[named]}" for named in sorted(answers) if answers[named] is not None]
    if errors:
        raise TerseError("\n".join([what, *errors]))


def _joined(partitions: Collection[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


def reassign(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    try:
        with open_cluster(given) as opened:
            ReassignCommand(given, opened.admin, random.Random()).run(given.action)
    except TerseError as reason:
        print(reason)
        return FAILED
    return DONE


main = Command(
    "reassign-partitions", PURPOSE, EPILOG, FLAGS, reassign, RULES, Words(ACTIONS, "list", ("reassignment-json-file",))
)
