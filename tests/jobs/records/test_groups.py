"""`kafka-consumer-groups`: flags, tables and messages as Kafka 4.3.1 prints them, live and from storage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.clients.admin.group_description import ConsumerGroupDescription, ConsumerGroupMember
from stratalog.clients.admin.groups import GroupAdmin, LiveGroups, StoredGroups
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.records import OffsetAndMetadata
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.records.groups import GroupCommand, filter_words, main, perform
from stratalog.jobs.text.consumer_groups import OffsetRow, members_table, offset_rows, offsets_table, state_table
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.memory_coordinator import MemoryCoordinator

T = [TopicPartition("t", number) for number in range(2)]
MEMBER = "console-consumer-8e7e774a-91c0-45a4-820c-0529046af5db"


def described(instance_id: str | None = None, member_id: str = MEMBER) -> ConsumerGroupDescription:
    member = ConsumerGroupMember(member_id, instance_id, "console-consumer", "/127.0.0.1", tuple(T))
    return ConsumerGroupDescription("live", "Stable", "range", (member,))


def test_the_offsets_table_is_kafkas() -> None:
    """Recorded from Kafka 4.3.1."""
    rows = offset_rows(described(), {T[0]: (4, 0), T[1]: (0, None)}, {T[0]: 4, T[1]: 0})
    assert offsets_table("live", rows, verbose=False) == (
        "\nGROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
        "CONSUMER-ID                                           HOST            CLIENT-ID\n"
        "live            t               0          4               4               0               "
        "console-consumer-8e7e774a-91c0-45a4-820c-0529046af5db /127.0.0.1      console-consumer\n"
        "live            t               1          0               0               0               "
        "console-consumer-8e7e774a-91c0-45a4-820c-0529046af5db /127.0.0.1      console-consumer\n"
    )
    assert offsets_table("live", rows[1:], verbose=True) == (
        "\nGROUP           TOPIC           PARTITION  LEADER-EPOCH    CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
        "CONSUMER-ID                                           HOST            CLIENT-ID\n"
        "live            t               1          -               0               0               0               "
        "console-consumer-8e7e774a-91c0-45a4-820c-0529046af5db /127.0.0.1      console-consumer\n"
    )


def test_missing_members_and_offsets_are_dashes() -> None:
    rows = [OffsetRow(T[0], 4, 0, 6), OffsetRow(T[1], None, None, 3)]
    assert offsets_table("g", rows, verbose=False).splitlines()[2:] == [
        (
            "g               t               0          4               6               2               "
            "-               -               -"
        ),
        (
            "g               t               1          -               3               -               "
            "-               -               -"
        ),
    ]


def test_the_members_table_is_kafkas() -> None:
    """Recorded from Kafka 4.3.1; lines end in spaces."""
    assert members_table(described(), verbose=False) == (
        "\nGROUP           CONSUMER-ID                                           HOST            CLIENT-ID        "
        "#PARTITIONS     \n"
        "live            console-consumer-8e7e774a-91c0-45a4-820c-0529046af5db /127.0.0.1      console-consumer "
        "2               \n"
    )
    static = members_table(described("inst", "inst-3e2d29b3-dcb1-479d-af32-6503dab79699"), verbose=True)
    assert static == (
        "\nGROUP           CONSUMER-ID                               GROUP-INSTANCE-ID HOST            "
        "CLIENT-ID        #PARTITIONS     CURRENT-EPOCH   CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT   \n"
        "live            inst-3e2d29b3-dcb1-479d-af32-6503dab79699 inst              /127.0.0.1      "
        "console-consumer 2               -               t:0,1                -               -                   \n"
    )


def test_the_state_table_is_kafkas_but_for_the_host() -> None:
    """Recorded from Kafka 4.3.1, which has `127.0.0.1:29192  (1)`."""
    assert state_table(described(), 1, verbose=True) == (
        "\nGROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                GROUP-EPOCH     "
        "TARGET-ASSIGNMENT-EPOCH   #MEMBERS\n"
        "live            -  (1)                    range                Stable               -               "
        "-                         1\n"
    )
    empty = ConsumerGroupDescription("empty", "Empty")
    assert state_table(empty, 1, verbose=False).splitlines()[2] == (
        "empty           -  (1)                    -                    Empty                0"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--verbose",
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets",
        ),
        ("--list --describe --group g", "Command must include exactly one action"),
        ("--describe", "Option [describe] takes one of these options: [group], [all-groups]"),
        ("--describe --group g --members --state", "takes at most one of these options: [members], [offsets], [state]"),
        ("--describe --group g --state stable", "Option [describe] does not take a value for [state]"),
        ("--describe --group g --all-groups", 'can\'t be used with option "[all-groups]"'),
        ("--list --members", "Option(s) [members] are unavailable given other options on the command line"),
        ("--delete", "Option [delete] takes one of these options: [group], [all-groups]"),
        ("--delete --group g --topic t", "does not support topic-specific offset deletion from a consumer group."),
        ("--delete-offsets --group g", "Option [delete-offsets] takes the following options: [group], [topic]"),
        ("--reset-offsets --group g --topic t", "Option '[reset-offsets]' requires one of the following scenarios:"),
        (
            "--reset-offsets --group g --topic t --to-earliest --to-latest",
            'Option "[to-earliest]" can\'t be used with option "[to-latest]"',
        ),
        (
            "--reset-offsets --group g --topic t --to-earliest --dry-run --execute",
            "Option [reset-offsets] only accepts one of [execute] and [dry-run]",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_refused_in_kafkas_words(arguments: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        main.call(arguments.split())
    assert message in str(refused.value)


def test_states_and_types_are_taken_in_any_case() -> None:
    known = ("Stable", "Empty")
    assert filter_words(" stable,EMPTY ", "state", known) == known
    assert filter_words(None, "state", known) == ()
    with pytest.raises(UsageError, match=r"Invalid state list 'bogus'\. Valid states are: Stable, Empty"):
        filter_words("bogus", "state", known)
    with pytest.raises(UsageError, match=r"Invalid types list 'bogus'\. Valid types are: Stable, Empty"):
        filter_words("bogus", "type", known)


def test_a_regular_expression_is_checked_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main.call(["--validate-regex", "a.*"]), main.call(["--validate-regex", "("])) == (0, 1)
    assert capsys.readouterr().out.startswith(
        "The regular expression `a.*` is valid.\nThe regular expression `(` is inv"
    )


class Tool:
    """The command on a cluster in memory: topic `t` of two partitions (4 and 0 records), topic `u` of one."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.cluster = MemoryCluster()
        self.cluster.create_topic("t", 2)
        self.cluster.create_topic("u", 1)
        self.cluster.append(T[0], b"0", b"1", b"2", b"3", time_ms=1_000)
        self.cluster.publish(T[0])
        self.coordinator = MemoryCoordinator(self.cluster)
        self.consumers: list[Consumer] = []

    def commit(self, group_id: str, offsets: dict[TopicPartition, int]) -> None:
        consumer = self.consumer(group_id, enable_auto_commit=False)
        consumer.commit_sync({tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()})

    def consumer(self, group_id: str, **settings: object) -> Consumer:
        view = ClusterView(ROOT, stores=self.cluster.stores)
        self.consumers.append(Consumer(self.cluster, {"group.id": group_id}, view=view, **settings))  # type: ignore[arg-type]
        return self.consumers[-1]

    def member(self, group_id: str, protocol: str = "classic") -> Consumer:
        """A live member that has both partitions of `t`."""
        consumer = self.consumer(group_id, client_id="c", group_protocol=protocol)
        consumer.subscribe(["t"])
        while len(consumer.assignment()) < 2:
            consumer.poll(5)
        return consumer

    def __call__(self, arguments: str, *, live: bool = True) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        view = ClusterView(ROOT, stores=self.cluster.stores, timeout_ms=0)
        groups = LiveGroups(self.cluster, view.clock, 5_000) if live else StoredGroups(view)
        given = main.checked(arguments.split())
        self.capsys.readouterr()
        code = perform(GroupCommand(given, GroupAdmin(groups, view), view), given.action)
        return code, *self.capsys.readouterr()


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    made = Tool(capsys)
    yield made
    for consumer in made.consumers:
        consumer.close()
    made.coordinator.stop()


@pytest.mark.parametrize("live", [True, False])
def test_groups_are_listed_with_types_and_states(tool: Tool, live: bool) -> None:
    tool.commit("empty", {T[0]: 4})
    tool.member("live")
    assert tool("--list", live=live) == (0, "empty\nlive\n", "")
    assert tool("--list --state --type", live=live)[1] == (
        "GROUP                     TYPE                 STATE               \n"
        "empty                     Classic              Empty               \n"
        "live                      Classic              Stable              \n"
    )
    assert tool("--list --state stable", live=live)[1].splitlines()[1:] == [
        "live                      Stable              "
    ]
    assert tool("--list --type consumer", live=live)[1].splitlines()[1:] == []


@pytest.mark.parametrize("live", [True, False])
def test_a_group_without_members_shows_its_offsets_and_lag(tool: Tool, live: bool) -> None:
    tool.commit("empty", {T[0]: 1, T[1]: 0})
    code, out, err = tool("--describe --group empty", live=live)
    assert (code, err) == (0, "\nConsumer group 'empty' has no active members.\n")
    assert out == (
        "\nGROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
        "CONSUMER-ID     HOST            CLIENT-ID\n"
        "empty           t               0          1               4               3               "
        "-               -               -\n"
        "empty           t               1          0               0               0               "
        "-               -               -\n"
    )
    assert tool("--describe --group empty --members", live=live)[1] == (
        "\nGROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     \n"
    )


@pytest.mark.parametrize("live", [True, False])
def test_a_live_group_shows_who_has_what(tool: Tool, live: bool) -> None:
    member = tool.member("live").group_metadata().member_id
    code, out, err = tool("--describe --all-groups", live=live)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()[2:]] == [
        ["live", "t", number, "-", end, "-", member, "/127.0.0.1", "c"] for number, end in (("0", "4"), ("1", "0"))
    ]
    assert tool("--describe --group live --state", live=live)[1].splitlines()[2].split() == (
        ["live", "-", "(1)", "range", "Stable", "1"]
    )
    assert tool("--describe --group live --members --verbose", live=live)[1].splitlines()[2].split() == (
        ["live", member, "/127.0.0.1", "c", "2", "-", "t:0,1", "-", "-"]
    )


@pytest.mark.parametrize("live", [True, False])
def test_a_modern_group_shows_who_has_what(tool: Tool, live: bool) -> None:
    member = tool.member("modern", "consumer")
    member.commit_sync({T[0]: OffsetAndMetadata(1)})
    member_id = member.group_metadata().member_id
    code, out, err = tool("--describe --group modern", live=live)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()[2:]] == [
        ["modern", "t", "0", "1", "4", "3", member_id, "/127.0.0.1", "c"],
        ["modern", "t", "1", "-", "0", "-", member_id, "/127.0.0.1", "c"],
    ]
    epoch = str(member.group_metadata().generation_id)
    assert tool("--describe --group modern --members --verbose", live=live)[1].splitlines()[2].split() == (
        ["modern", member_id, "/127.0.0.1", "c", "2", epoch, "t:0,1", epoch, "t:0,1"]
    )
    assert tool("--describe --group modern --state --verbose", live=live)[1].splitlines()[2].split() == (
        ["modern", "-", "(1)", "uniform", "Stable", epoch, epoch, "1"]
    )
    assert tool("--list --state --type", live=live)[1].splitlines()[1].split() == ["modern", "Consumer", "Stable"]
    printed = tool("--reset-offsets --group modern --topic t --to-earliest --execute", live=live)[1]
    assert "Assignments can only be reset if the group 'modern' is inactive, but the current state is Stable" in printed


@pytest.mark.parametrize("live", [True, False])
def test_a_group_that_is_not_there_is_an_error(tool: Tool, live: bool) -> None:
    code, out, _ = tool("--describe --group missing", live=live)
    assert code == 1
    assert out.startswith(
        "\nError: Executing consumer group command failed due to GROUP_ID_NOT_FOUND: Group missing not"
    )


@pytest.mark.parametrize(
    ("arguments", "rows", "printed"),
    [
        ("--topic t --to-earliest", "t 0 0,t 1 0", ""),
        ("--topic t --to-latest", "t 0 4,t 1 0", ""),
        ("--topic t:0 --to-offset 2", "t 0 2", ""),
        ("--topic t:0 --to-offset 99", "t 0 4", "WARN New offset (99) is higher than latest offset for topic part"),
        ("--topic t:0 --shift-by -1", "t 0 2", ""),
        ("--topic t:0 --shift-by -9", "t 0 0", "WARN New offset (-6) is lower than earliest offset"),
        ("--all-topics --to-current", "t 0 3", ""),
        ("--topic t --to-current", "t 0 3,t 1 0", ""),
        ("--topic t:0 --to-datetime 1970-01-01T00:00:00.500", "t 0 0", ""),
        ("--topic t:0 --by-duration PT1S", "t 0 4", "Warn: Partition 0 from topic t is empty. Falling back to latest"),
        ("--topic t:0 --topic u --to-latest", "t 0 4,u 0 0", ""),
    ],
)
def test_offsets_are_reset_in_every_way(tool: Tool, arguments: str, rows: str, printed: str) -> None:
    """Dry runs work from storage alone; --execute goes through the coordinator."""
    tool.commit("empty", {T[0]: 3})
    lines = [["empty", *row.split()] for row in rows.split(",")]
    for live, flags in ((False, "--dry-run"), (True, "--dry-run"), (True, "--execute")):
        code, out, err = tool(f"--reset-offsets --group empty {arguments} {flags}", live=live)
        table = out[out.index("\nGROUP") :]
        assert code == 0
        assert table.splitlines()[1] == "GROUP           TOPIC           PARTITION  NEW-OFFSET"
        assert [line.split() for line in table.splitlines()[2:]] == lines
        assert printed in out + err
    shown = {(row[1], row[2]): row[3] for row in lines}
    described_rows = [line.split() for line in tool("--describe --group empty")[1].splitlines()[2:]]
    assert shown.items() <= {(row[1], row[2]): row[3] for row in described_rows}.items()


def test_a_reset_without_execute_says_that_it_did_nothing(tool: Tool) -> None:
    tool.commit("empty", {T[0]: 3})
    code, _, err = tool("--reset-offsets --group empty --topic t --to-earliest")
    assert code == 0
    assert err.startswith("WARN: No action will be performed as the --execute option is missing. In version 5.0,")
    assert tool("--describe --group empty")[1].splitlines()[2].split()[3] == "3"


def test_a_group_that_is_not_there_yet_can_be_given_offsets(tool: Tool) -> None:
    assert tool("--reset-offsets --group new --topic t --to-latest --execute")[0] == 0
    assert tool("--list")[1] == "new\n"


def test_a_plan_is_exported_and_taken_from_a_file(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> None:
    tool.commit("empty", {T[0]: 3})
    _, exported, _ = tool("--reset-offsets --group empty --topic t --to-latest --export --dry-run")
    assert exported == "t,0,4\nt,1,0\n\n"
    plan = tmp_path_factory.mktemp("plan") / "plan.csv"
    plan.write_text("t,0,1\nt,1,9\n")
    _, out, err = tool(f"--reset-offsets --group empty --from-file {plan} --execute")
    assert [line.split()[2:] for line in out.splitlines()[2:]] == [["0", "1"], ["1", "0"]]
    assert "WARN New offset (9) is higher than latest offset for topic partition t-1. Value will be set to 0" in err
    plan.write_text("other,t,0,1\n")
    code, out, _ = tool(f"--reset-offsets --group empty --group two --from-file {plan} --dry-run")
    assert (code, out.splitlines()[1]) == (0, "Error: No reset plan for group empty found")


def test_offsets_of_an_active_group_are_not_reset(tool: Tool) -> None:
    tool.member("live")
    _, out, _ = tool("--reset-offsets --group live --topic t --to-earliest --execute")
    assert out == (
        "\nError: Assignments can only be reset if the group 'live' is inactive, but the current state is Stable.\n"
        "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\n"
    )


def test_changes_are_refused_without_a_coordinator(tool: Tool) -> None:
    tool.commit("empty", {T[0]: 3})
    for arguments in (
        "--reset-offsets --group empty --topic t --to-earliest --execute",
        "--delete --group empty",
        "--delete-offsets --group empty --topic t",
    ):
        code, out, _ = tool(arguments, live=False)
        assert code == 1
        assert "no broker can be called from this process. A RemoteCluster calls the brokers of other" in out


def test_groups_are_deleted_unless_they_have_members(tool: Tool) -> None:
    tool.commit("empty", {T[0]: 3})
    tool.commit("other", {T[0]: 3})
    tool.member("live")
    assert tool("--delete --group other") == (
        0, "Deletion of requested consumer groups ('other') was successful.\n", "",
    )  # fmt: skip
    code, out, _ = tool("--delete --group live --group empty --group missing")
    lines = out.splitlines()
    assert (code, lines[:2]) == (1, ["", "Error: Deletion of some consumer groups failed:"])
    assert lines[2].startswith("* Group 'live' could not be deleted due to: NON_EMPTY_GROUP:")
    assert lines[3].startswith("* Group 'missing' could not be deleted due to: GROUP_ID_NOT_FOUND:")
    assert lines[4:] == ["", "These consumer groups were deleted successfully: 'empty'"]
    assert tool("--list")[1] == "live\n"


def test_offsets_of_topics_without_a_reader_are_deleted(tool: Tool) -> None:
    tool.commit("empty", {T[0]: 3, T[1]: 0})
    code, out, _ = tool("--delete-offsets --group empty --topic t:0")
    assert (code, out) == (
        0,
        (
            "Request succeeded for deleting offsets from group empty.\n"
            "\nTOPIC           PARTITION  STATUS         \n"
            "t               0          Successful     \n"
        ),
    )
    assert len(tool("--describe --group empty")[1].splitlines()) == 3
    member = tool.member("live")
    member.commit_sync({T[0]: OffsetAndMetadata(1)})
    code, out, _ = tool("--delete-offsets --group live --topic t:0")
    assert (code, out.splitlines()[1]) == (
        1,
        "Error: Encountered some partition-level error, see the follow-up details.",
    )
    assert "Error: GROUP_SUBSCRIBED_TO_TOPIC:" in out
    code, out, _ = tool("--delete-offsets --group missing --topic t --topic nosuch")
    assert code == 1
    assert [line.split()[:2] for line in out.splitlines()[4:]] == [["nosuch", "-"], ["t", "0"], ["t", "1"]]
