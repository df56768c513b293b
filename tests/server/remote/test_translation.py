"""Requests to coordinators as bytes and back: a broker reads what was sent, the caller what was answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stratalog.replication.requests.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
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
    TransactionListing,
)
from stratalog.server.remote.between_brokers import (
    Gathering,
    is_marker,
    is_question,
    markers_message,
    markers_written,
    questions_answered,
    questions_message,
)
from stratalog.server.remote.translation import produce_message, produced, translation_of
from stratalog.storage.errors import (
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
from stratalog.wire.messages.entities import Values, build
from stratalog.wire.messages.frames import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    served_versions,
)
from stratalog.wire.messages.schema import Entity, response_type
from stratalog.wire.messages.values import fields_of, value_of

TOPIC_ID = "0123456789abcdef0123456789abcdef"
OWNED = (TopicPartitions(TOPIC_ID, (0, 2)),)
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
        ConsumerGroupHeartbeatResponse("m", 3, 5_000, OWNED),
    ),
    (ConsumerGroupHeartbeatRequest("g", "m", 2), ConsumerGroupHeartbeatResponse("m", 2, 5_000)),
    (
        ConsumerGroupDescribeRequest(("g",)),
        ConsumerGroupDescribeResponse(
            (
                DescribedConsumerGroup(
                    "g", "Stable", 4, 4, "uniform",
                    (MemberDescription("m", None, "r", 4, "c", "h", ("t",), "", (replace(OWNED[0], topic_name="t"),)),),
                ),
            )
        ),
    ),
    (InitProducerIdRequest("x", 60_000, 5, 1), InitProducerIdResponse(5, 2)),
    (EndTxnRequest("x", 5, 1, True, TRANSACTION_VERSION_2), EndTxnResponse(5, 2)),
    (EndTxnRequest("x", 5, 1, False), EndTxnResponse()),
    (
        AddOffsetsToTxnRequest("x", 5, 1, "g", TopicPartition("__consumer_offsets", 3)),
        AddOffsetsToTxnResponse(),
    ),
    (
        DescribeTransactionsRequest("x"),
        DescribeTransactionsResponse("x", "Ongoing", 60_000, 1_234, 5, 1, (TopicPartition("t", 1),)),
    ),
    (DescribeTransactionsRequest("x"), DescribeTransactionsResponse("x", "Empty", 60_000, -1, 5, 1)),
    (
        ListTransactionsRequest(("Ongoing", "Odd"), (5,), 1_000),
        ListTransactionsResponse((TransactionListing("x", 5, "Ongoing"),), ("Odd",)),
    ),
]  # fmt: skip
"""A request, and the response that a coordinator gives in its own process."""


def received(message: Entity) -> Entity:
    """A request's message as its broker decodes it."""
    api_key, version = int(message.__api_key__), int(message.__version__)
    frame = decode_request(encode_request(9, "c", message), {api_key: served_versions(api_key)})
    assert (frame.correlation_id, frame.client_id, frame.version) == (9, "c", version)
    return frame.entity


def answered(message: Entity, values: Values) -> Entity:
    """The answer to a request's message, from these values, as its sender decodes it."""
    api_key, version = int(message.__api_key__), int(message.__version__)
    frame = encode_response(9, build(response_type(api_key, version), values))
    return decode_response(frame, api_key, version)[1]


def response_values(response: Any) -> Values:
    """A response as `server.apis` puts it into a message."""

    def assigned(topics: Any) -> Values | None:
        return None if topics is None else {"topic_partitions": [fields_of(t) for t in topics]}

    if isinstance(response, ConsumerGroupHeartbeatResponse):
        owned = [{"topic_id": t.topic_id, "partitions": t.partitions} for t in response.assignment or ()]
        return fields_of(response, {"assignment": lambda topics: topics and {"topic_partitions": owned}})
    if isinstance(response, ConsumerGroupDescribeResponse):
        (group,) = response.groups
        both = dict.fromkeys(("assignment", "target_assignment"), assigned)
        members = [fields_of(member, both) for member in group.members]
        return {"groups": [{**fields_of(group), "members": members}]}
    if isinstance(response, DescribeTransactionsResponse):
        topics = [{"topic": named.topic, "partitions": [named.partition]} for named in response.topics]
        return {"transaction_states": [{**fields_of(response), "topics": topics}]}
    return fields_of(response)


@pytest.mark.parametrize(("request_", "response"), ASKED, ids=lambda each: type(each).__name__)
def test_a_request_and_its_response_come_back_as_they_were(request_: Any, response: Any) -> None:
    translation = translation_of(request_)
    message = received(translation.message(request_))
    if isinstance(request_, DescribeTransactionsRequest):
        assert message.transactional_ids == (request_.transactional_id,)
    else:
        known = {
            name: getattr(request_, name)
            for name in ("offsets_partition", "transaction_version")
            if hasattr(request_, name)
        }
        assert value_of(type(request_), message, **known) == request_
    assert translation.answer(request_, answered(message, response_values(response))) == response


def test_what_a_broker_answers_for_a_coordinator_elsewhere_is_an_error_again() -> None:
    """As in one process, where the runtime answers for every kind of request."""
    commit, describe = OffsetCommitRequest("g", TOPICS), DescribeGroupsRequest(("g",))
    refused = OffsetCommitResponsePartition(0, NotCoordinatorError(""))
    cases = [
        (commit, OffsetCommitResponse((OffsetCommitResponseTopic("t", (refused,)),))),
        (describe, DescribeGroupsResponse((DescribedGroup("g", error=CoordinatorLoadInProgressError("")),))),
        (SyncGroupRequest("g", 1, "m"), SyncGroupResponse(error=NotCoordinatorError(""))),
    ]
    for request, response in cases:
        translation = translation_of(request)
        answer = translation.answer(request, answered(translation.message(request), response_values(response)))
        assert isinstance(answer, NotCoordinatorError | CoordinatorLoadInProgressError)


def test_an_error_of_the_group_stays_in_the_response() -> None:
    request = SyncGroupRequest("g", 1, "m")
    translation = translation_of(request)
    answer: Any = translation.answer(request, answered(translation.message(request), {"error_code": 82}))
    assert isinstance(answer.error, FencedInstanceIdError)


def test_what_kafka_has_no_request_for_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="PartitionsDeleted is not sent to brokers of other processes"):
        translation_of(PartitionsDeleted(()))


# -- appends -----------------------------------------------------------------------------------------------------

T = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]


def test_a_batch_is_produced_in_its_transaction() -> None:
    rows = [(1, b"k", b"v", [Header("h", b"1")]), (2, None, None, None)]
    batch = NewRecordBatch(payload_table(rows), 5, 1, 7, attributes=16)
    request = ProduceRequest(IdentifiedPartition(TOPIC_ID, T[1]), batch, 1, 5_000, transactional_id="x")
    message = received(produce_message(request))
    (topic,) = message.topic_data
    assert (message.transactional_id, message.acks, topic.partition_data[0].index) == ("x", 1, 1)
    assert topic.topic_id.hex == TOPIC_ID
    part = {"index": 1, "base_offset": 40, "error_code": None}
    response = produced(
        request, answered(message, {"responses": [{"topic_id": TOPIC_ID, "partition_responses": [part]}]})
    )
    assert (response.topic_partition, response.error) == (T[1], None)
    assert (response.base_offset, response.last_offset) == (40, 41)
    part |= {"error_code": NotLeaderOrFollowerError(""), "error_message": "led elsewhere"}
    response = produced(
        request, answered(message, {"responses": [{"topic_id": TOPIC_ID, "partition_responses": [part]}]})
    )
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
    message = received(markers_message(ends))
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
    outcomes = markers_written(ends, answered(message, {"markers": markers}))
    assert [(each.topic_partition, each.error and each.error.code) for each in outcomes] == [
        (T[0], None), (T[1], 6), (T[2], None),
    ]  # fmt: skip
    unknown = markers_written(ends, answered(message, {"markers": []}))
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
    message = received(questions_message(asked))
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
    answers: list[Any] = questions_answered(asked, answered(message, {"results_by_transaction": results}))
    assert isinstance(answers[0], AddPartitionsToTxnResponse)
    assert [named for named, _ in answers[0].results] == [T[2], T[0]]
    assert isinstance(answers[0].results[0][1], ConcurrentTransactionsError)
    assert answers[1] == AddPartitionsToTxnResponse(((T[1], None),))
    assert isinstance(answers[2].error, ProducerFencedError)
    refused: list[Any] = questions_answered(asked, answered(message, {"error_code": 31}))
    assert [each.code for each in refused] == [31, 31, 31]


def test_what_comes_while_something_is_under_way_goes_together_later() -> None:
    gathering = Gathering[str]()
    assert [gathering.put(each) for each in "abc"] == [["a"], [], []]
    assert [gathering.answered(), gathering.answered(), gathering.put("d")] == [["b", "c"], [], ["d"]]
