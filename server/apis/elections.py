"""ElectLeaders, and BrokerHeartbeat, by which brokers are found alive. I/O: the metadata log, through the admin client.

Kafka's brokers send heartbeats to a listener of controllers, so that no listener for clients names them in ApiVersions;
here they come to the listener for brokers, and ApiVersions does not name them either.
Source: `ControllerApis.handleElectLeaders`, `ReplicationControlManager` (KIP-460),
`ControllerApis.handleBrokerHeartBeatRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.controller.election.preferred_leaders import ElectionType
from stratalog.replication.controller.sessions import Beat
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.request.api import Api, Call, by_topic, error_only, failed
from stratalog.server.request.broker import ApiFamily
from stratalog.storage.errors import InvalidRequestError, StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values

_ELECTION_TYPES = {0: ElectionType.PREFERRED, 1: ElectionType.UNCLEAN}


ACLS_AGE_MS = 60_000
"""The age of the ACLs at most by which a beat is accepted."""


class ElectionApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.ELECT_LEADERS, self._elect, _elections_refused, is_slow=True),
        ]

    def _elect(self, call: Call) -> Values:
        """For all partitions (null), the answer leaves out those that need no election."""
        self._broker.check(call, Operation.ALTER, ResourceType.CLUSTER)
        number = call.given("election_type", 0)
        if number not in _ELECTION_TYPES:
            raise InvalidRequestError(f"Unknown election type {number}")
        call.check_time()
        asked = call.request.topic_partitions
        named = None
        if asked is not None:
            named = [TopicPartition(topic.topic, partition) for topic in asked for partition in topic.partitions]
        answers = self._broker.admin.elect_leaders(_ELECTION_TYPES[number], named)
        results = [
            {"topic": topic, "partition_result": [{"partition_id": p, **failed(error)} for p, error in partitions]}
            for topic, partitions in by_topic(answers)
        ]
        return {"error_code": None, "replica_election_results": results}


def _elections_refused(call: Call, error: StratalogError) -> Values:
    """The error for the whole and for each partition: version 0 has no code for the whole."""
    results = [
        {"topic": each.topic, "partition_result": [{"partition_id": p, **failed(error)} for p in each.partitions]}
        for each in call.request.topic_partitions or ()
    ]
    return {"error_code": error, "replica_election_results": results}


class HeartbeatApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [Api(ApiKey.BROKER_HEARTBEAT, self._heartbeat, error_only)]

    def _heartbeat(self, call: Call) -> Values:
        """Beats come all the time: they are no reason to read metadata, which may be paid, but now and then."""
        self._broker.image(ACLS_AGE_MS)
        with self._broker.cached_metadata():
            self._broker.check(call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        beats, request = self._broker.beats, call.request
        if beats is None:
            raise InvalidRequestError(f"broker {self._broker.broker_id} takes no heartbeats here")
        beat = Beat(request.broker_id, request.broker_epoch, request.current_metadata_offset)
        beats.hears(beat, self._broker.view.clock.monotonic_ms())
        return {
            "error_code": None,
            "is_caught_up": beat.metadata_offset >= beats.metadata_offset,
            "is_fenced": not beats.is_current(beat.broker_id, beat.broker_epoch),
            "should_shut_down": False,
        }
