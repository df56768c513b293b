"""A consumer group of either protocol as one value.

I/O: none of its own; a caller's `ask` reaches the coordinator. Source: Kafka's ConsumerGroupDescription,
MemberDescription and DescribeConsumerGroupsHandler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from stratalog.replication.html_table import html_fields, html_table
from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
    MemberAssignment,
)
from stratalog.replication.requests.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from stratalog.storage.errors import GroupIdNotFoundError, StratalogError, UnknownServerError, UnsupportedVersionError
from stratalog.storage.records import TopicPartition
from stratalog.wire.consumer_protocol import decode_assignment

CONSUMER = "consumer"

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member. Epoch and target are the modern protocol's; None in a classic group.

    assignment  what the member has, with the partitions that it still has to revoke
    """

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    assignment: tuple[TopicPartition, ...] = ()
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group; `error` is GROUP_ID_NOT_FOUND for an unknown one. Epochs are None in a classic group.

    group_state  Empty, Stable or Dead; PreparingRebalance and CompletingRebalance (classic); Assigning and Reconciling
    """

    group_id: str
    group_state: str = ""
    partition_assignor: str = ""
    members: tuple[ConsumerGroupMember, ...] = ()
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None
    error: StratalogError | None = None

    def _repr_html_(self) -> str:
        header = ("member", "instance", "client", "host", "partitions", "epoch")
        rows = [
            (each.member_id, each.group_instance_id, each.client_id, each.host, each.assignment, each.member_epoch)
            for each in self.members
        ]
        about = {"state": self.group_state, "assignor": self.partition_assignor, "epoch": self.group_epoch}
        if self.error is not None:
            about["error"] = str(self.error)
        return html_table(f"group {self.group_id}", header, rows) + html_fields(about)


def described_group(group_id: str, ask: Callable[[object], object]) -> ConsumerGroupDescription:
    """A group of either protocol; `ask` returns its coordinator's response. Raises what `ask` raises.

    As Kafka's admin client: asked as a modern group first, and as a classic one where there is none of this name, or
    the broker knows no modern groups.
    """
    try:
        modern = as_response(ConsumerGroupDescribeResponse, ask(ConsumerGroupDescribeRequest((group_id,)))).groups[0]
        if not isinstance(modern.error, GroupIdNotFoundError | UnsupportedVersionError):
            return _of_modern(modern)
    except (GroupIdNotFoundError, UnsupportedVersionError):
        pass
    return _of_classic(as_response(DescribeGroupsResponse, ask(DescribeGroupsRequest((group_id,)))).groups[0])


def _of_modern(group: DescribedConsumerGroup) -> ConsumerGroupDescription:
    members = tuple(
        ConsumerGroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _partitions(each.assignment),
            _partitions(each.target_assignment),
            each.member_epoch,
        )
        for each in group.members
    )
    epochs = (group.group_epoch, group.assignment_epoch)
    return ConsumerGroupDescription(
        group.group_id, group.group_state, group.assignor_name, members, *epochs, group.error
    )


def _partitions(assignment: MemberAssignment) -> tuple[TopicPartition, ...]:
    topics = assignment.topic_partitions
    return tuple(sorted(TopicPartition(topic.topic_name, number) for topic in topics for number in topic.partitions))


def _of_classic(group: DescribedGroup) -> ConsumerGroupDescription:
    """Only members of consumer groups have partitions; other groups assign what they like (Kafka Connect)."""
    is_of_consumers = group.protocol_type == CONSUMER
    members = tuple(
        ConsumerGroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            decode_assignment(each.member_assignment).partitions if is_of_consumers else (),
        )
        for each in group.members
    )
    return ConsumerGroupDescription(group.group_id, group.group_state, group.protocol_data, members, error=group.error)


def as_response(kind: type[Response], response: object) -> Response:
    """The response, which is of this kind. Raises the error that it is; UnknownServerError for anything else."""
    if isinstance(response, StratalogError):
        raise response
    if not isinstance(response, kind):
        raise UnknownServerError(f"expected {kind.__name__}, the coordinator answered {response!r}")
    return response
