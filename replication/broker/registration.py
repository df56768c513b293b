"""A broker's registrations in the metadata log, one after the other.

I/O: the metadata log and, by `session`, the session's object. Each registration is a new broker epoch (promise 13,
KIP-380). The rules are `controller.brokers.register_broker`.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication.broker.hosted_replicas import BrokerIdentity
from stratalog.replication.broker.loop_state import LoopState
from stratalog.replication.broker.session import BrokerSession
from stratalog.replication.controller.brokers import NOTHING_FOUND, register_broker
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import NO_BROKER_EPOCH
from stratalog.replication.metrics import RunState
from stratalog.storage.errors import DuplicateBrokerRegistrationError, StratalogError


class Registration:
    """Those of this process. `on_replaced` stops the broker: a later process of it must not be fenced in turn."""

    def __init__(
        self,
        loop: LoopState,
        identity: BrokerIdentity,
        session: BrokerSession,
        on_replaced: Callable[[StratalogError], None],
        on_registered: Callable[[int], None],
    ) -> None:
        self.identity = identity
        self.session = session
        self.broker_epoch = NO_BROKER_EPOCH
        """That of the newest registration. Invariant: it never decreases."""
        self.announced_epoch = NO_BROKER_EPOCH
        """The one under which the broker publishes. Invariant: `broker_epoch`, or one before it while a store is away:
        then the broker answers nothing with what it commits."""
        self.fenced_epoch = NO_BROKER_EPOCH
        """The newest one that was found to be over. Invariant: nothing is led under it any more."""
        self.found = NOTHING_FOUND
        """What the root held when the process began."""
        self.is_known = False
        """Whether this process has registered, perhaps as one that recovers."""
        self.is_leaving = False
        """Whether a controlled shutdown has begun."""
        self.stopped_by: StratalogError | None = None
        """Why the broker stopped. Invariant: once it is set, nothing is led and nothing is written."""
        self.on_registered = on_registered
        self._loop = loop
        self._on_replaced = on_replaced

    def recover(self) -> None:
        """Register as a process that recovers: fenced, which ends what an earlier one left at work."""
        self._loop.metadata.propose(lambda image: self._proposed(image, recovers=True))
        self.is_known = True

    def register(self) -> None:
        """Register under a new broker epoch. Raises what the metadata log answers."""
        self.session.put(0)
        self.broker_epoch = self._loop.metadata.propose(self._proposed)
        self.is_known = True

    def _proposed(self, image: ClusterImage, *, recovers: bool = False) -> Result[int]:
        self.check_not_replaced(image)
        own, run = self.identity, self.session.incarnation_id
        return register_broker(
            image, own.broker_id, run, own.root, own.rack, own.endpoint, found=self.found, recovers=recovers
        )

    def check_not_replaced(self, image: ClusterImage) -> None:
        """Raises DuplicateBrokerRegistrationError, and stops the broker, if a later process of it has registered."""
        if self.is_known and (reason := self.replaced_by(image)) is not None:
            raise reason

    def replaced_by(self, image: ClusterImage) -> StratalogError | None:
        """Why this process has stopped for good, if another one of this broker has registered after it."""
        known = image.brokers.get(self.identity.broker_id)
        if known is None or known.registration.incarnation_id == self.session.incarnation_id:
            return None
        reason = DuplicateBrokerRegistrationError(
            f"broker {self.identity.broker_id} runs elsewhere as incarnation {known.registration.incarnation_id}"
        )
        self._on_replaced(reason)
        return reason

    @property
    def is_announced(self) -> bool:
        """Whether the broker publishes under its newest registration."""
        return self.announced_epoch == self.broker_epoch

    @property
    def run_state(self) -> RunState:
        """Whether this process is starting, recovering, running, shutting down or stopped. Called from any thread."""
        if self.stopped_by is not None:
            return RunState.NOT_RUNNING
        if self.is_leaving:
            return RunState.PENDING_CONTROLLED_SHUTDOWN
        if self.broker_epoch == NO_BROKER_EPOCH:
            return RunState.RECOVERY if self.is_known else RunState.STARTING
        return RunState.RUNNING
