"""How a producer's batch reaches the partition's leader: by a call to its broker. I/O: through the broker.

A broker of this process is called with objects, one elsewhere with frames. Each batch is answered at most once; without
an answer the sender times out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from stratalog.clients.connected_cluster import CalledBrokers
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.server.bootstrap import BrokerFace
from stratalog.storage.errors import LeaderNotAvailableError, RequestTimedOutError, StratalogError

MAX_IN_FLIGHT = 5
"""The number of batches of one partition that may be under way at once, and arrive in order."""
POLL_INTERVAL_MS = 50
"""The interval of `Transport.poll` while answers are awaited."""

Answer = Callable[[ProduceResponse | None, StratalogError | None], None]
"""Called once with the leader's response, or the error without one. From any thread; it does not block."""

Produce = Callable[[ProduceRequest, Callable[[ProduceResponse], None]], None]
"""`BrokerFace.produce_then`, or a function around it."""


class Transport:
    """Carries batches to leaders, for one producer. It is called while the producer's lock is held, and waits for no
    answer."""

    def __init__(self, brokers: CalledBrokers) -> None:
        self._brokers = brokers
        self._asked: dict[int, _AskedBroker] = {}

    def send(self, broker: BrokerState, request: ProduceRequest, answer: Answer) -> None:
        """Send a batch. Raises a StratalogError when it certainly did not arrive; there is no answer then."""
        leader = broker.registration.broker_id
        face = self._brokers.get(leader)
        if face is None:
            raise LeaderNotAvailableError(
                f"{request.topic_partition}: broker {leader} (epoch {broker.broker_epoch}) is not running"
            )
        asked = self._asked.get(leader)
        if asked is None or asked.face is not face:
            if asked is not None:
                asked.fail(leader)
            asked = self._asked[leader] = _AskedBroker(face, self._produce_of(face))
        asked.send(request, answer)

    def _produce_of(self, face: BrokerFace) -> Produce:
        """The function that sends a batch to a broker."""
        return face.produce_then

    def poll(self) -> None:
        """Answer what waits for brokers that are gone with an error."""
        for leader, asked in list(self._asked.items()):
            if self._brokers.get(leader) is not asked.face:
                del self._asked[leader]
                asked.fail(leader)


@dataclass(slots=True)
class _AskedBroker:
    """One broker object and its open answers. The thread that removes an answer from the dictionary calls it."""

    face: BrokerFace
    produce: Produce
    _answers: dict[int, Answer] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)

    def send(self, request: ProduceRequest, answer: Answer) -> None:
        number = next(self._numbers)
        self._answers[number] = answer
        self.produce(request, partial(self._answered, number))

    def _answered(self, number: int, response: ProduceResponse) -> None:
        answer = self._answers.pop(number, None)
        if answer is not None:
            answer(response, None)

    def fail(self, leader: int) -> None:
        for number in list(self._answers):
            answer = self._answers.pop(number, None)
            if answer is not None:
                reason = f"broker {leader} is gone; whether it stored the batch is unknown"
                answer(None, RequestTimedOutError(reason))
