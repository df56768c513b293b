"""`kafka-topics` for stratalog: create, delete, describe, list and grow topics; Kafka's flags and output.

I/O: the metadata log, through the admin client; it works beside a running `strata-cluster`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from stratalog.clients.admin.admin import Admin, NewTopic, TopicDescription
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.jobs.command.arguments import (
    Parser,
    TopicFilter,
    add_cluster_flags,
    client_properties,
    cluster_root,
    timeout_ms,
)
from stratalog.jobs.command.terminal import DONE, UsageError, run
from stratalog.jobs.text import topics as topic_text
from stratalog.replication.controller import topics as topic_rules
from stratalog.replication.controller.topic_deletion import TopicDeletion
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.errors import (
    StratalogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

ACTIONS = ("list", "describe", "create", "alter", "delete")
REPORTS = ("under_replicated_partitions", "unavailable_partitions", "under_min_isr_partitions", "at_min_isr_partitions")
SHORT_MAX = 32_767

PURPOSE = "This tool helps to create, delete, describe, or change a topic."
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
  {prog} --root ROOT --create --topic events --partitions 6 --replication-factor 3 --config min.insync.replicas=2
  {prog} --root ROOT --describe --topic events
  {prog} --root ROOT --list --exclude-internal
  {prog} --root ROOT --alter --topic events --partitions 12
  {prog} --root ROOT --delete --topic 'events|clicks' --if-exists

exit code: 0 when it was done, 1 with a line on standard error when not; a refused request changes nothing

topic configs (name = default unit):
{configs}
"""
ALLOWED_WITH = {
    "config": ("alter", "create"),
    "partitions": ("alter", "create"),
    "replication_factor": ("create",),
    "replica_assignment": ("alter", "create"),
    **dict.fromkeys(REPORTS, ("describe",)),
    "topics_with_overrides": ("describe",),
    "if_exists": ("alter", "delete", "describe"),
    "if_not_exists": ("create",),
    "exclude_internal": ("list", "describe"),
}
"""Flag -> the actions it goes with, as Kafka has it."""


def parser() -> Parser:
    """All flags of kafka-topics that mean something here."""
    made = Parser("topics", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog, configs=topic_text.config_table())
    add_cluster_flags(made)
    action = made.add_argument_group("what to do, exactly one of")
    for name, text in (
        ("create", "Create a new topic."),
        ("delete", "Delete a topic."),
        ("alter", "Alter the number of partitions and replica assignment."),
        ("describe", "List details for the given topics."),
        ("list", "List all available topics."),
    ):
        action.add_argument(f"--{name}", action="store_true", help=text)
    _add_topic_flags(made)
    _add_describe_flags(made)
    return made


def _add_topic_flags(made: Parser) -> None:
    which = made.add_argument_group("with which topic")
    which.add_argument(
        "--topic", metavar="TOPIC", help="The topic to create, alter, describe or delete. It also accepts a regular "
        "expression, except for --create option.",
    )  # fmt: skip
    which.add_argument("--topic-id", metavar="ID", help="The topic-id to describe, as --describe prints it.")
    which.add_argument(
        "--partitions", type=int, metavar="N", help="The number of partitions for the topic being created or altered; "
        "the cluster's num.partitions if not given with --create. More partitions than before send the same key "
        "elsewhere.",
    )  # fmt: skip
    which.add_argument(
        "--replication-factor", type=int, metavar="N", help="The replication factor for each partition in the topic "
        "being created; the cluster's default.replication.factor if not given. Each replica lies on a broker of its "
        "own.",
    )  # fmt: skip
    which.add_argument(
        "--replica-assignment", metavar="1:2,2:3", help="A list of manual partition-to-broker assignments for the "
        "topic being created or altered: a comma between partitions, a colon between replicas, the leader first.",
    )  # fmt: skip
    which.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="A topic configuration override for the "
        "topic being created; may be repeated. The names are listed below.",
    )  # fmt: skip
    which.add_argument(
        "--if-exists", action="store_true", help="If set when altering or deleting or describing topics, the action "
        "will only execute if the topic exists.",
    )  # fmt: skip
    which.add_argument(
        "--if-not-exists", action="store_true", help="If set when creating topics, a topic that exists already is no "
        "error.",
    )  # fmt: skip


def _add_describe_flags(made: Parser) -> None:
    only = made.add_argument_group("what to show")
    for name, text in (
        ("under-replicated-partitions", "only show under-replicated partitions."),
        ("unavailable-partitions", "only show partitions whose leader is not available."),
        ("under-min-isr-partitions", "only show partitions whose isr count is less than the configured minimum."),
        ("at-min-isr-partitions", "only show partitions whose isr count is equal to the configured minimum."),
        ("topics-with-overrides", "only show topics that have overridden configs."),
    ):
        only.add_argument(f"--{name}", action="store_true", help=f"If set when describing topics, {text}")
    only.add_argument(
        "--exclude-internal", action="store_true", help="Exclude internal topics when listing or describing topics."
    )
    only.add_argument(
        "--partition-size-limit-per-response", type=int, metavar="N", help="Taken for Kafka's sake, without effect."
    )


def check_flags(given: argparse.Namespace) -> str:
    """The action asked for. UsageError when the flags do not go together, in Kafka's words."""
    chosen = [name for name in ACTIONS if getattr(given, name)]
    if len(chosen) != 1:
        raise UsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete\n"
            f"Try '{parser().prog} --help'."
        )
    action = chosen[0]
    if action in ("create", "alter", "delete") and not given.topic:
        raise UsageError('Missing required argument "[topic]"')
    if action == "describe" and given.if_exists and not (given.topic or given.topic_id):
        raise UsageError("--topic or --topic-id is required to describe a topic")
    if action == "alter":
        _check_alter(given)
    for name, actions in ALLOWED_WITH.items():
        if getattr(given, name) not in (None, False, []) and action not in actions:
            raise _not_together(name, action)
    _check_combinations(given, action)
    return action


def _check_alter(given: argparse.Namespace) -> None:
    if given.config:
        raise UsageError(
            'Option combination "[config]" can\'t be used with option "[alter]" '
            "(To alter topic configurations, use strata-configs.)"
        )
    if given.partitions is None:
        raise UsageError('Missing required argument "[partitions]"')


def _check_combinations(given: argparse.Namespace, action: str) -> None:
    if action == "create" and given.replica_assignment:
        for name in ("partitions", "replication_factor"):
            if getattr(given, name) is not None:
                raise _not_together("replica_assignment", name)
    chosen = [name for name in (*REPORTS, "topics_with_overrides") if getattr(given, name)]
    if len(chosen) > 1:
        raise _not_together(chosen[0], chosen[1])


def _not_together(used: str, other: str) -> UsageError:
    flags = [name.replace("_", "-") for name in (used, other)]
    return UsageError(f'Option "[{flags[0]}]" can\'t be used with option "[{flags[1]}]"')


class TopicCommand:
    """The actions on one cluster, each printing what Kafka's tool prints."""

    def __init__(self, given: argparse.Namespace, view: ClusterView) -> None:
        self._given = given
        self._view = view
        self._admin = Admin(view.root, view=view)

    def run(self, action: str) -> None:
        """Do what one of `ACTIONS` says."""
        {
            "list": self.list_all,
            "describe": self.describe,
            "create": self.create,
            "alter": self.alter,
            "delete": self.delete,
        }[action]()

    def create(self) -> None:
        given = self._given
        configs = topic_text.parse_topic_configs(given.config)
        if any(character in given.topic for character in "._"):
            print(topic_text.COLLISION_WARNING)
        try:
            self._admin.create_topics([self._new_topic(configs)], wait=False)
        except TopicAlreadyExistsError:
            if given.if_not_exists:
                return
            raise
        print(f"Created topic {given.topic}.", flush=True)
        self._admin.await_leaders(given.topic)

    def _new_topic(self, configs: dict[str, str]) -> NewTopic:
        given = self._given
        if given.replica_assignment:
            assignment = topic_text.parse_replica_assignment(given.replica_assignment)
            return NewTopic(given.topic, configs=configs, replica_assignment=assignment)
        partitions, factor = given.partitions, given.replication_factor
        if factor is not None and not 1 <= factor <= SHORT_MAX:
            raise UsageError(f"The replication factor must be between 1 and {SHORT_MAX} inclusive")
        if partitions is not None and partitions < 1:
            raise UsageError("The partitions must be greater than 0")
        not_given = topic_rules.NOT_GIVEN
        return NewTopic(given.topic, partitions or not_given, factor or not_given, configs)

    def list_all(self) -> None:
        print("\n".join(self._selected()))

    def describe(self) -> None:
        deletions = self._deletions()
        names = self._with_id() if self._given.topic_id else self._selected() if deletions else self._required()
        live = self._view.image.live_brokers()
        for topic in self._admin.describe_topics(names).values():
            self._describe(topic, set(live))
        for deletion in deletions:
            print(topic_text.deletion_line(deletion))

    def _deletions(self) -> list[TopicDeletion]:
        """The topics to be described that are gone, but not from every broker yet."""
        given = self._given
        if given.topic_id or given.topics_with_overrides or any(getattr(given, name) for name in REPORTS):
            return []
        wanted = TopicFilter(given.topic or ".*", exclude_internal=given.exclude_internal)
        return [deletion for deletion in self._admin.list_topic_deletions() if wanted.allows(deletion.topic)]

    def _describe(self, topic: TopicDescription, live: set[int]) -> None:
        given = self._given
        reports = [name for name in REPORTS if getattr(given, name)]
        if not reports and (topic.configs or not given.topics_with_overrides):
            print(topic_text.topic_line(topic))
        if given.topics_with_overrides:
            return
        tests = _report_tests(topic, live)
        for partition in topic.partitions:
            if not reports or any(tests[name](partition) for name in reports):
                print(topic_text.partition_line(partition))

    def alter(self) -> None:
        for name in self._required():
            self._grow(name, self._given.partitions)

    def _grow(self, name: str, count: int) -> None:
        existing = len(self._view.partitions(name))
        listed = self._given.replica_assignment
        every = topic_text.parse_replica_assignment(listed) if listed else {}
        assignment = {partition: brokers for partition, brokers in every.items() if partition >= existing}
        if not listed:
            self._admin.create_partitions(name, count)
            return

        def decide(image: ClusterImage) -> Result[int]:
            return topic_rules.create_partitions(image, name, count, assignment)

        self._view.propose(decide)
        self._admin.await_leaders(name)

    def delete(self) -> None:
        self._admin.delete_topics(self._required())

    def _selected(self) -> list[str]:
        """The topics that the flags name; all when they name none."""
        given = self._given
        if given.topic:
            wanted = TopicFilter(given.topic, exclude_internal=given.exclude_internal)
            return [name for name in self._admin.list_topics() if wanted.allows(name)]
        return [name for name in self._admin.list_topics() if not (given.exclude_internal and is_internal(name))]

    def _required(self) -> list[str]:
        found = self._selected()
        if not found and self._given.topic and not self._given.if_exists:
            raise UnknownTopicOrPartitionError(f"Topic '{self._given.topic}' does not exist as expected")
        return found

    def _with_id(self) -> list[str]:
        wanted = self._given.topic_id
        self._view.refresh()
        ids = self._view.image.topic_ids
        found = [name for name, known in ids.items() if wanted in (known, topic_text.kafka_uuid(known))]
        if not found and not self._given.if_exists:
            raise UnknownTopicOrPartitionError(f"TopicId '{wanted}' does not exist as expected")
        return found


def _report_tests(topic: TopicDescription, live: set[int]) -> dict[str, Callable[[PartitionRecord], bool]]:
    return {
        "under_replicated_partitions": topic_text.is_under_replicated,
        "unavailable_partitions": lambda partition: topic_text.is_unavailable(partition, live),
        "under_min_isr_partitions": lambda partition: topic_text.is_under_min_isr(partition, topic.configs),
        "at_min_isr_partitions": lambda partition: topic_text.is_at_min_isr(partition, topic.configs),
    }


def topics(arguments: Sequence[str] | None) -> int:
    """The tool without its terminal: raises what went wrong."""
    given = parser().parse(arguments)
    action = check_flags(given)
    wait_ms = timeout_ms(client_properties(given.command_config))
    try:
        command = TopicCommand(given, ClusterView(cluster_root(given), timeout_ms=wait_ms))
        command.run(action)
    except StratalogError as error:
        # Scripts look for Kafka's line on standard output; the error's name follows on standard error.
        print(f"Error while executing topic command : {error}")
        raise
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    return run(lambda: topics(arguments))


if __name__ == "__main__":
    sys.exit(main())
