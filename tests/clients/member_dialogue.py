"""A consumer's membership, driven by a test: its requests and listener calls as time passes, and the answers to it."""

from __future__ import annotations

from typing import Generic, TypeVar

from stratalog.clients.consumer.classic_membership import ClassicMembership
from stratalog.clients.consumer.membership import ListenerCall, Send
from stratalog.clients.consumer.modern_membership import ModernMembership

AnyMembership = TypeVar("AnyMembership", ClassicMembership, ModernMembership)


class MemberDialogue(Generic[AnyMembership]):
    """`member` is subscribed to topic `t`; its `calls` are performed when they come."""

    def __init__(self, member: AnyMembership) -> None:
        self.now_ms = 1_000
        self.member = member
        self.calls: list[ListenerCall] = []
        self.member.subscribe(frozenset({"t"}))

    def step(self, *, is_polling: bool = True) -> list[Send]:
        """Do everything that is due, listener calls too; the requests that were sent."""
        sends: list[Send] = []
        while True:
            step = self.member.step(self.now_ms, is_polling=is_polling)
            sends += step.sends
            if step.call is not None:
                self.calls.append(step.call)
                self.member.performed(step.call)
            elif not step.sends:
                return sends

    def answer(self, send: Send, answer: object) -> None:
        self.member.answered(send.token, answer, self.now_ms)
