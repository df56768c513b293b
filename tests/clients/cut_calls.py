"""Calls of coordinators that can be cut, as the network of a process that was killed."""

from __future__ import annotations

from stratalog.clients.coordinator_calls import Answer, InProcessCalls


class CutCalls(InProcessCalls):
    """While `is_cut`, no request reaches a broker, and none is answered."""

    is_cut = False

    def find(self, key: str, answer: Answer) -> None:
        if not self.is_cut:
            super().find(key, answer)

    def send(self, broker_id: int, key: str, request: object, answer: Answer) -> None:
        if not self.is_cut:
            super().send(broker_id, key, request, answer)
