"""What a producer in another process makes of a leader's answer in its inbox; the test acts as the leader."""

from __future__ import annotations

import pytest

from stratalog.clients.producer.transport import InboxTransport
from stratalog.replication.requests.hand_over import (
    INBOX_PREFIX,
    answer_path,
    decode_request,
    encode_answer,
    request_id_of,
)
from stratalog.replication.requests.produce import ACKS_LEADER, ProduceRequest, ProduceResponse
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidRecordError, StratalogError, UnknownTopicOrPartitionError
from stratalog.storage.log.append import Appended, HandedFiles
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.storage.logs import batch

T0 = TopicPartition("t", 0)


class Producing:
    """One batch handed over to broker 1, which leads `t-0`."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.cluster.create_topic("t")
        self.answers: list[tuple[ProduceResponse | None, StratalogError | None]] = []
        view = ClusterView(ROOT, stores=self.cluster.stores)
        self.transport = InboxTransport(view)
        request = ProduceRequest(view.image.identified(T0), batch("a"), ACKS_LEADER, timeout_ms=1_000)
        self.transport.send(
            view.image.brokers[1], request, lambda response, error: self.answers.append((response, error))
        )
        self.inbox = self.cluster.stores.objects(self.cluster.root_of(1))
        (found,) = (meta.path for meta in self.inbox.list(INBOX_PREFIX))
        self.request_id = request_id_of(found) or ""
        _, (asked,) = decode_request(self.inbox.get(found))
        self.handed: HandedFiles = asked.handed

    def append(self) -> StratalogError | None:
        """The leader appends the file; the error, if it refuses."""
        outcome = self.cluster.log(1, T0).append_files([self.handed], 0, 1)
        assert isinstance(outcome, Appended)
        (result,) = outcome.results
        return result if isinstance(result, StratalogError) else None

    def answered(self, error: StratalogError | None) -> StratalogError | None:
        """The error that the producer gets when the leader answers with this one."""
        self.inbox.put(
            answer_path(self.request_id), encode_answer([ProduceResponse(IdentifiedPartition("id", T0), error=error)])
        )
        self.transport.poll()
        ((response, lost),) = self.answers
        assert response is not None
        assert lost is None
        return response.error


def test_a_batch_whose_file_went_with_a_deleted_topic_is_sent_again() -> None:
    producing = Producing()
    producing.cluster.delete_topic("t")
    producing.cluster.create_topic("t")
    refusal = producing.append()
    assert isinstance(refusal, InvalidRecordError)
    error = producing.answered(refusal)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert error.retriable


@pytest.mark.parametrize("refusal", [None, InvalidRecordError("a bad one")])
def test_another_answer_stays_as_it_is(refusal: StratalogError | None) -> None:
    producing = Producing()
    assert producing.append() is None
    error = producing.answered(refusal)
    assert type(error) is type(refusal)
