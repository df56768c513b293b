"""Produce requests that follow each other on one connection share commits, and are stored and answered in order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from struct import pack

import pytest

from stratalog import Admin, Cluster, ClusterView
from stratalog.server.endpoint.order import PIPELINED_MAX
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_response, encode_request
from stratalog.wire.messages.schema import request_type
from tests.clients.kafka_client import batch_of

T0 = TopicPartition("t", 0)
VERSION = 9
ROUNDS = 20
WAIT_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with Cluster.start(tmp_path_factory.mktemp("group"), brokers=1, fetcher="thread", config=config) as made:
        Admin(made).create_topic("t", 1, 1)
        yield made


def produce_frame(sequence: int) -> bytes:
    """A request with one record, from an idempotent producer."""
    records = batch_of(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
    data = [{"index": 0, "records": records}]
    values = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": "t", "partition_data": data}]}
    return encode_request(sequence, "test", values, request_type(ApiKey.PRODUCE, VERSION))


def test_a_connections_produce_requests_share_commits_and_keep_their_order(cluster: Cluster) -> None:
    """Each request alone would be a commit of its own; its sequence is refused unless it follows the one before."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    view, count = ClusterView(cluster), ROUNDS * PIPELINED_MAX
    before = view.records.read_from_log(T0, lambda log: log.state.version, 1_000)
    with socket.create_connection((host, int(port)), WAIT_S) as connection, connection.makefile("rb") as answers:
        for first in range(0, count, PIPELINED_MAX):
            frames = [produce_frame(sequence) for sequence in range(first, first + PIPELINED_MAX)]
            connection.sendall(b"".join(pack(">i", len(frame)) + frame for frame in frames))
            for sequence in range(first, first + PIPELINED_MAX):
                frame = answers.read(int.from_bytes(answers.read(4), "big"))
                correlation_id, answer = decode_response(frame, ApiKey.PRODUCE, VERSION)
                (told,) = answer.responses[0].partition_responses
                assert (correlation_id, int(told.error_code), told.base_offset) == (sequence, 0, sequence)
    commits = view.records.read_from_log(T0, lambda log: log.state.version, 1_000) - before
    assert ROUNDS <= commits <= count / 2
