"""Requests to coordinators as bytes and back: a broker reads what was sent, the caller what was answered."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    MemberAssignment,
    MemberDescription,
    TopicPartitions,
)
from stratalog.replication.requests.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    MemberResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    PartitionsDeleted,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from stratalog.replication.requests.messages import MESSAGES
from stratalog.replication.requests.produce import ProduceRequest
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_2,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
    TransactionTopic,
)
from stratalog.server.apis.transactions.producers import INIT_PRODUCER_ID_MAX
from stratalog.server.remote.between_brokers import (
    Gathering,
    is_marker,
    is_question,
    markers_message,
    markers_written,
    questions_answered,
    questions_message,
)
from stratalog.server.remote.messages import (
    coordinators_answer,
    message_of,
    produce_message,
    produced,
)
from stratalog.storage.errors import (
    NAME_OF_CODE,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    InvalidRequestError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
)
from stratalog.storage.records import Header, IdentifiedPartition, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import (
    Message,
    decode_request,
    encode_response,
    served_versions,
)
from stratalog.wire.messages.layouts import layout_of
from stratalog.wire.messages.schema import Entity, request_type, response_type, shape_of
from stratalog.wire.messages.values import Values, code_of
from tests.wire.messages.filled import filled

TOPIC_ID = "0123456789abcdef0123456789abcdef"
OWNED = (TopicPartitions(TOPIC_ID, (0, 2)),)
NAMED = MemberAssignment((TopicPartitions(TOPIC_ID, (0, 2), "t"),))
TOPICS = (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, 7, 3, "note"),)),)
DONE = (OffsetCommitResponseTopic("t", (OffsetCommitResponsePartition(0),)),)
FETCHED = (OffsetFetchResponseTopic("t", (OffsetFetchResponsePartition(0, 7, 3, "note"),)),)

ASKED = [
    (
        JoinGroupRequest("g", 10_000, 60_000, "m", "i", "consumer", (JoinGroupRequestProtocol("range", b"s"),), "why"),
        JoinGroupResponse(3, "consumer", "range", "m", True, "m", (JoinGroupResponseMember("m", "i", b"s"),)),
    ),
    (
        SyncGroupRequest("g", 3, "m", "i", "consumer", "range", (SyncGroupRequestAssignment("m", b"mine"),)),
        SyncGroupResponse("consumer", "range", b"mine"),
    ),
    (HeartbeatRequest("g", 3, "m", "i"), HeartbeatResponse()),
    (LeaveGroupRequest("g", (MemberIdentity("m", "i", "why"),)), LeaveGroupResponse((MemberResponse("m", "i"),))),
    (OffsetCommitRequest("g", TOPICS, 3, "m", "i"), OffsetCommitResponse(DONE)),
    (TxnOffsetCommitRequest("x", "g", 5, 1, TOPICS, 3, "m", "i"), TxnOffsetCommitResponse(DONE)),
    (
        OffsetFetchRequest((OffsetFetchRequestGroup("g", (OffsetFetchRequestTopic("t", (0,)),), "m", 4),), True),
        OffsetFetchResponse((OffsetFetchResponseGroup("g", FETCHED),)),
    ),
    (OffsetFetchRequest((OffsetFetchRequestGroup("g"),)), OffsetFetchResponse((OffsetFetchResponseGroup("g"),))),
    (
        OffsetDeleteRequest("g", (OffsetDeleteRequestTopic("t", (OffsetDeleteRequestPartition(0),)),)),
        OffsetDeleteResponse(DONE),
    ),
    (
        DescribeGroupsRequest(("g",)),
        DescribeGroupsResponse(
            (
                DescribedGroup(
                    "g", "Stable", "consumer", "range", (DescribedGroupMember("m", "i", "c", "h", b"s", b"a"),)
                ),
            )
        ),
    ),
    (
        ListGroupsRequest(("Stable",), ("classic",)),
        ListGroupsResponse((ListedGroup("g", "consumer", "Stable", "classic"),)),
    ),
    (DeleteGroupsRequest(("g",)), DeleteGroupsResponse((DeletableGroupResult("g"),))),
    (
        ConsumerGroupHeartbeatRequest("g", "m", 2, "i", "rack", 45_000, ("t",), "t.*", "uniform", OWNED),
        ConsumerGroupHeartbeatResponse("m", 3, 5_000, MemberAssignment(OWNED)),
    ),
    (ConsumerGroupHeartbeatRequest("g", "m", 2), ConsumerGroupHeartbeatResponse("m", 2, 5_000)),
    (
        ConsumerGroupDescribeRequest(("g",)),
        ConsumerGroupDescribeResponse(
            (
                DescribedConsumerGroup(
                    "g", "Stable", 4, 4, "uniform",
                    (MemberDescription("m", None, "r", 4, "c", "h", ("t",), "", NAMED),),
                ),
            )
        ),
    ),
    (InitProducerIdRequest("x", 60_000, 5, 1), InitProducerIdResponse(5, 2)),
    (EndTxnRequest("x", 5, 1, True, TRANSACTION_VERSION_2), EndTxnResponse(5, 2)),
    (EndTxnRequest("x", 5, 1, False), EndTxnResponse()),
    (
        AddOffsetsToTxnRequest("x", 5, 1, "g"),
        AddOffsetsToTxnResponse(),
    ),
    (
        DescribeTransactionsRequest(("x",)),
        DescribeTransactionsResponse(
            (TransactionDescription("x", "Ongoing", 60_000, 1_234, 5, 1, (TransactionTopic("t", (1,)),)),)
        ),
    ),
    (
        DescribeTransactionsRequest(("x",)),
        DescribeTransactionsResponse((TransactionDescription("x", "Empty", 60_000, -1, 5, 1),)),
    ),
    (
        ListTransactionsRequest(("Ongoing", "Odd"), (5,), 1_000),
        ListTransactionsResponse((TransactionListing("x", 5, "Ongoing"),), ("Odd",)),
    ),
]  # fmt: skip
"""A request, and the response that a coordinator gives in its own process."""


def received(message: Message) -> Entity:
    """A request's message as its broker decodes it."""
    key, version, held_as = message.api_key, message.version, type(message.content)
    held = {key: held_as} if message.response else None
    frame = decode_request(message.frame(9, "c"), {key: served_versions(key)}, None, held)
    assert (frame.correlation_id, frame.client_id, frame.version) == (9, "c", version)
    return frame.entity


def answered(message: Message, response: Any) -> Entity:
    """The answer to a request's message, which is a response or its values, as its sender decodes it."""
    kios = response_type(message.api_key, message.version)
    return message.answer(encode_response(9, response, kios))


@pytest.mark.parametrize(("request_", "response"), ASKED, ids=lambda each: type(each).__name__)
def test_a_request_and_its_response_come_back_as_they_were(request_: Any, response: Any) -> None:
    message = message_of(request_)
    without_version = replace(request_, transaction_version=0) if isinstance(request_, EndTxnRequest) else request_
    assert received(message) == without_version, "the version of the message says the rest"
    assert coordinators_answer(answered(message, response)) == response


EVERY_VERSION = [
    (key, version, request, response)
    for request, (key, _, response) in MESSAGES.items()
    for version in served_versions(key, INIT_PRODUCER_ID_MAX if key == ApiKey.INIT_PRODUCER_ID else None)
]


@pytest.mark.parametrize(("key", "version", "request_", "response"), EVERY_VERSION)
def test_each_version_of_a_message_is_read_and_written_as_an_object_of_ours(
    key: int, version: int, request_: type, response: type
) -> None:
    draw = random.Random(100 * key + version)
    for kios, held_as in ((request_type(key, version), request_), (response_type(key, version), response)):
        for _ in range(10):
            data = layout_of(kios).write(with_our_errors(filled(kios, draw)))
            read, end = layout_of(kios, held_as).read(data)
            assert (type(read), end) == (held_as, len(data))
            assert layout_of(kios, held_as).write(read) == data


def with_our_errors(part: Entity) -> Entity:
    """The same with errors that we know, and a text wherever there is one."""
    changed: dict[str, Any] = {}
    for each in shape_of(type(part)):
        value = getattr(part, each.name)
        if each.part is not None and value is not None:
            changed[each.name] = tuple(map(with_our_errors, value)) if each.is_array else with_our_errors(value)
        elif each.kafka_type == "error_code":
            changed[each.name] = code_of(int(value) if int(value) in NAME_OF_CODE else 0)
    if hasattr(part, "error_message"):
        changed["error_message"] = "why" if changed["error_code"] else None
    return replace(part, **changed)


def test_what_a_broker_answers_for_a_coordinator_elsewhere_is_an_error_again() -> None:
    """As in one process, where the runtime answers for every kind of request."""
    refused = OffsetCommitResponsePartition(0, NotCoordinatorError(""))
    described = TransactionDescription("x", error=NotCoordinatorError(""))
    cases: list[tuple[object, object]] = [
        (OffsetCommitRequest("g", TOPICS), OffsetCommitResponse((OffsetCommitResponseTopic("t", (refused,)),))),
        (
            DescribeGroupsRequest(("g",)),
            DescribeGroupsResponse((DescribedGroup("g", error=CoordinatorLoadInProgressError("")),)),
        ),
        (DescribeTransactionsRequest(("x",)), DescribeTransactionsResponse((described,))),
        (SyncGroupRequest("g", 1, "m"), SyncGroupResponse(error=NotCoordinatorError(""))),
    ]
    for request, response in cases:
        answer = coordinators_answer(answered(message_of(request), response))
        assert isinstance(answer, NotCoordinatorError | CoordinatorLoadInProgressError)


def test_an_error_of_the_group_stays_in_the_response() -> None:
    message = message_of(SyncGroupRequest("g", 1, "m"))
    answer: Any = coordinators_answer(answered(message, {"error_code": 82}))
    assert isinstance(answer.error, FencedInstanceIdError)


def test_what_kafka_has_no_request_for_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="PartitionsDeleted is not sent to brokers of other processes"):
        message_of(PartitionsDeleted(()))


# -- appends -----------------------------------------------------------------------------------------------------

T = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]


def test_a_batch_is_produced_in_its_transaction() -> None:
    rows = [(1, b"k", b"v", [Header("h", b"1")]), (2, None, None, None)]
    batch = NewRecordBatch(payload_table(rows), 5, 1, 7, attributes=16)
    request = ProduceRequest(IdentifiedPartition(TOPIC_ID, T[1]), batch, 1, 5_000, transactional_id="x")
    sent = produce_message(request)
    message = received(sent)
    (topic,) = message.topic_data
    assert (message.transactional_id, message.acks, topic.partition_data[0].index) == ("x", 1, 1)
    assert topic.topic_id == TOPIC_ID
    part = {"index": 1, "base_offset": 40, "error_code": None}
    response = produced(request, answered(sent, {"responses": [{"topic_id": TOPIC_ID, "partition_responses": [part]}]}))
    assert (response.topic_partition, response.error) == (T[1], None)
    assert (response.base_offset, response.last_offset) == (40, 41)
    part |= {"error_code": NotLeaderOrFollowerError(""), "error_message": "led elsewhere"}
    response = produced(request, answered(sent, {"responses": [{"topic_id": TOPIC_ID, "partition_responses": [part]}]}))
    assert isinstance(response.error, NotLeaderOrFollowerError)
    assert str(response.error) == "led elsewhere"


def test_markers_go_together_and_each_has_its_outcome() -> None:
    ends = [
        ProduceRequest(
            IdentifiedPartition(TOPIC_ID, named), marker_batch(5, 2, EndMarker(is_commit, 3), 1, TRANSACTION_VERSION_2)
        )
        for named, is_commit in zip(T, (True, False, True), strict=True)
    ]
    assert all(map(is_marker, ends))
    sent = markers_message(ends)
    message = received(sent)
    assert [(m.producer_id, m.producer_epoch, m.transaction_result, m.coordinator_epoch) for m in message.markers] == [
        (5, 2, True, 3), (5, 2, False, 3), (5, 2, True, 3),
    ]  # fmt: skip
    assert {m.transaction_version for m in message.markers} == {2}
    codes = (0, 6, 0)
    topics = [
        {"name": tp.topic, "partitions": [{"partition_index": tp.partition, "error_code": code}]}
        for tp, code in zip(T, codes, strict=True)
    ]
    markers = [{"producer_id": 5, "topics": [topic]} for topic in topics]
    outcomes = markers_written(ends, answered(sent, {"markers": markers}))
    assert [(each.topic_partition, each.error and each.error.code) for each in outcomes] == [
        (T[0], None), (T[1], 6), (T[2], None),
    ]  # fmt: skip
    unknown = markers_written(ends, answered(sent, {"markers": []}))
    assert [each.error and each.error.code for each in unknown] == [-1, -1, -1]


def test_questions_of_leaders_go_together_and_each_has_its_answer() -> None:
    offsets = TopicPartition("__consumer_offsets", 3)
    asked: list[Any] = [
        AddPartitionsToTxnRequest("x", 5, 1, (T[2], T[0]), transaction_version=TRANSACTION_VERSION_2),
        AddPartitionsToTxnRequest("x", 5, 1, (T[1],), verify_only=True),
        AddOffsetsToTxnRequest("y", 6, 0, "g", offsets, TRANSACTION_VERSION_2),
    ]
    assert all(map(is_question, asked))
    assert not is_question(AddOffsetsToTxnRequest("y", 6, 0, "g", offsets))
    sent = questions_message(asked)
    message = received(sent)
    assert [(t.transactional_id, t.verify_only) for t in message.transactions] == [
        ("x", False), ("x", True), ("y", False),
    ]  # fmt: skip

    def result(name: str, errors: dict[TopicPartition, int]) -> Values:
        topics = [
            {"name": tp.topic, "results_by_partition": [{"partition_index": tp.partition, **error}]}
            for tp, error in ((tp, {"partition_error_code": code}) for tp, code in errors.items())
        ]
        return {"transactional_id": name, "topic_results": topics}

    results = [result("x", {T[0]: 0, T[2]: 51}), result("x", {T[1]: 0}), result("y", {offsets: 90})]
    answers: list[Any] = questions_answered(asked, answered(sent, {"results_by_transaction": results}))
    assert isinstance(answers[0], AddPartitionsToTxnResponse)
    assert [named for named, _ in answers[0].results] == [T[2], T[0]]
    assert isinstance(answers[0].results[0][1], ConcurrentTransactionsError)
    assert answers[1] == AddPartitionsToTxnResponse(((T[1], None),))
    assert isinstance(answers[2].error, ProducerFencedError)
    refused: list[Any] = questions_answered(asked, answered(sent, {"error_code": 31}))
    assert [each.code for each in refused] == [31, 31, 31]


def test_what_comes_while_something_is_under_way_goes_together_later() -> None:
    gathering = Gathering[str]()
    assert [gathering.put(each) for each in "abc"] == [["a"], [], []]
    assert [gathering.answered(), gathering.answered(), gathering.put("d")] == [["b", "c"], [], ["d"]]
