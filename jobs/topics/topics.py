"""`kafka-topics` for stratalog: create, delete, describe, list and grow topics; Kafka's flags and output.

I/O: the metadata log or brokers, through an admin client.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from stratalog import NewTopic, StratalogError, TopicDescription
from stratalog.clients.admin.cluster_admin import ClusterAdmin
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import NOT_TOGETHER, Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.output import JSON, OUTPUT, print_rows
from stratalog.jobs.command.partition_filter import TopicFilter
from stratalog.jobs.command.terminal import DONE, UsageError
from stratalog.jobs.command.tool import Command, settings_table
from stratalog.jobs.command.words import Words
from stratalog.jobs.text import topics as topic_text
from stratalog.replication.controller import topics as topic_rules
from stratalog.replication.controller.topic_deletion import TopicDeletion
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from stratalog.storage.topic_config import TOPIC_CONFIGS

ACTIONS = ("list", "describe", "create", "alter", "delete")
REPORTS: dict[str, Callable[[PartitionRecord, TopicDescription, set[int]], bool]] = {
    "under_replicated_partitions": lambda partition, _topic, _live: topic_text.is_under_replicated(partition),
    "unavailable_partitions": lambda partition, _topic, live: topic_text.is_unavailable(partition, live),
    "under_min_isr_partitions": lambda partition, topic, _live: topic_text.is_under_min_isr(partition, topic.configs),
    "at_min_isr_partitions": lambda partition, topic, _live: topic_text.is_at_min_isr(partition, topic.configs),
}
"""Flag -> the test of a partition to show, of its topic and the live brokers."""

SHORT_MAX = 32_767

PURPOSE = "This tool helps to create, delete, describe, or change a topic."
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --create --topic events --partitions 6 --replication-factor 3 --config min.insync.replicas=2
  {prog} --root ROOT --describe --topic events
  {prog} --root ROOT --list --exclude-internal
  {prog} --root ROOT --alter --topic events --partitions 12
  {prog} --root ROOT --delete --topic 'events|clicks' --if-exists

exit code: 0 when it was done, 1 with a line on standard error when not; a refused request changes nothing

topic configs (name = default unit):
"""
# fmt: off
FLAGS = {**CLUSTER, "what to do, exactly one of": (
    switch("create", "Create a new topic."),
    switch("delete", "Delete a topic."),
    switch("alter", "Alter the number of partitions and replica assignment."),
    switch("describe", "List details for the given topics."),
    switch("list", "List all available topics."),
), "with which topic": (
    Flag("topic", "TOPIC", "The topic to create, alter, describe or delete. It also accepts a regular expression, "
         "except for --create option.", required_with="create alter delete", letter="t"),
    Flag("topic-id", "ID", "The topic-id to describe, as --describe prints it."),
    Flag("partitions", "N", "The number of partitions for the topic being created or altered; the cluster's "
         "num.partitions if not given with --create. More partitions than before send the same key elsewhere.",
         int, only_with="alter create", required_with="alter", letter="p"),
    Flag("replication-factor", "N", "The replication factor for each partition in the topic being created; the "
         "cluster's default.replication.factor if not given. Each replica lies on a broker of its own.",
         int, only_with="create", letter="r"),
    Flag("replica-assignment", "1:2,2:3", "A list of manual partition-to-broker assignments for the topic being "
         "created or altered: a comma between partitions, a colon between replicas, the leader first.",
         only_with="alter create"),
    Flag("config", "NAME=VALUE", "A topic configuration override for the topic being created; may be repeated. The "
         "names are listed below.", is_repeated=True, only_with="alter create", letter="c"),
    switch("if-exists", "If set when altering or deleting or describing topics, the action will only execute if the "
           "topic exists.", "alter delete describe"),
    switch("if-not-exists", "If set when creating topics, a topic that exists already is no error.", "create"),
), "what to show": (
    *(switch(name, f"If set when describing topics, only show {text}.", "describe") for name, text in (
        ("under-replicated-partitions", "under-replicated partitions"),
        ("unavailable-partitions", "partitions whose leader is not available"),
        ("under-min-isr-partitions", "partitions whose isr count is less than the configured minimum"),
        ("at-min-isr-partitions", "partitions whose isr count is equal to the configured minimum"),
        ("topics-with-overrides", "topics that have overridden configs"),
    )),
    OUTPUT,
    switch("exclude-internal", "Exclude internal topics when listing or describing topics.", "list describe"),
    Flag("partition-size-limit-per-response", "N", "Accepted for Kafka's sake, without effect.", int),
)}
RULES = (
    *Rule.exactly_one(ACTIONS, "Command must include exactly one action: --list, --describe, --create, --alter or "
                      "--delete\nTry '{prog} --help'."),
    Rule("--topic or --topic-id is required to describe a topic", "describe if-exists", "topic topic-id"),
    *Rule.not_with("alter", "config", 'Option combination "[{}]" can\'t be used with option "[{}]" (To alter topic '
              "configurations, use strata configs.)"),
    *Rule.by_action(FLAGS, ACTIONS),
    *(Rule(NOT_TOGETHER.format("replica-assignment", name), f"create replica-assignment {name}")
      for name in ("partitions", "replication-factor")),
    *Rule.at_most_one([*(name.replace("_", "-") for name in REPORTS), "topics-with-overrides"]),
)
# fmt: on


class TopicCommand:
    """The actions on one cluster, each printing what Kafka's tool prints."""

    def __init__(self, given: argparse.Namespace, admin: ClusterAdmin) -> None:
        self._given = given
        self._admin = admin

    def run(self, action: str) -> None:
        """Perform one of `ACTIONS`."""
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
        names = self._selected()
        if self._given.output == JSON:
            print_rows({"topic": name} for name in names)
        else:
            print("\n".join(names))

    def describe(self) -> None:
        deletions = self._deletions()
        names = self._with_id() if self._given.topic_id else self._selected() if deletions else self._required()
        live = {each.broker_id for each in self._admin.describe_cluster().brokers if not each.fenced}
        for topic in self._admin.describe_topics(names).values():
            if self._given.output == JSON:
                self._describe_as_json(topic, live)
            else:
                self._describe(topic, live)
        for deletion in deletions:
            self._show_deletion(deletion)

    def _show_deletion(self, deletion: TopicDeletion) -> None:
        if self._given.output == JSON:
            states = {str(broker_id): str(state) for broker_id, state in deletion.replica_states.items()}
            print_rows([{"topic": deletion.topic, "markedForDeletion": True, "replicas": states}])
        else:
            print(topic_text.deletion_line(deletion))

    def _describe_as_json(self, topic: TopicDescription, live: set[int]) -> None:
        """One object for the topic, with the partitions that the flags ask for."""
        given, wanted = self._given, self._wanted(topic, live)
        if given.topics_with_overrides and not topic.configs:
            return
        if not wanted and any(getattr(given, name) for name in REPORTS):
            return
        partitions = [] if given.topics_with_overrides else [topic_text.partition_values(each) for each in wanted]
        about = {"topic": topic.name, "topicId": topic_text.kafka_uuid(topic.topic_id)}
        print_rows([{**about, "configs": dict(sorted(topic.configs.items())), "partitions": partitions}])

    def _wanted(self, topic: TopicDescription, live: set[int]) -> list[PartitionRecord]:
        """The partitions that the flags ask for."""
        reports = [name for name in REPORTS if getattr(self._given, name)]
        return [
            partition
            for partition in topic.partitions
            if not reports or any(REPORTS[name](partition, topic, live) for name in reports)
        ]

    def _deletions(self) -> list[TopicDeletion]:
        """The topics to be described that were deleted, but not from every broker yet."""
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
        for partition in self._wanted(topic, live):
            print(topic_text.partition_line(partition))

    def alter(self) -> None:
        for name in self._required():
            self._grow(name, self._given.partitions)

    def _grow(self, name: str, count: int) -> None:
        listed = self._given.replica_assignment
        if not listed:
            self._admin.create_partitions(name, count)
            return
        existing = len(self._admin.describe_topics([name])[name].partitions)
        every = topic_text.parse_replica_assignment(listed)
        self._admin.create_partitions(name, count, [every[each] for each in sorted(every) if each >= existing])

    def delete(self) -> None:
        self._admin.delete_topics(self._required())

    def _selected(self) -> list[str]:
        """The topics that the flags name; all when they name none."""
        wanted = TopicFilter(self._given.topic or ".*", exclude_internal=self._given.exclude_internal)
        return [name for name in self._admin.list_topics() if wanted.allows(name)]

    def _required(self) -> list[str]:
        found = self._selected()
        if not found and self._given.topic and not self._given.if_exists:
            raise UnknownTopicOrPartitionError(f"Topic '{self._given.topic}' does not exist as expected")
        return found

    def _with_id(self) -> list[str]:
        wanted = self._given.topic_id
        ids = {name: each.topic_id for name, each in self._admin.describe_topics().items()}
        found = [name for name, known in ids.items() if wanted in (known, topic_text.kafka_uuid(known))]
        if not found and not self._given.if_exists:
            raise UnknownTopicOrPartitionError(f"TopicId '{wanted}' does not exist as expected")
        return found


def topics(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    try:
        with open_cluster(given) as opened:
            TopicCommand(given, opened.admin).run(given.action)
    except StratalogError as error:
        # Scripts expect Kafka's line on standard output; the error's name follows on standard error.
        print(f"Error while executing topic command : {error}")
        raise
    return DONE


main = Command(
    "topics", PURPOSE, EPILOG + settings_table(TOPIC_CONFIGS), FLAGS, topics, RULES, Words(ACTIONS, "list", ("topic",))
)
