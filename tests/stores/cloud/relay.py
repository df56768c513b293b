"""A simulated cloud: a relay before an object store server that is as far, as slow and as faulty as one in a cloud.

    python -m tests.stores.cloud.relay PORT CONTROL_PORT SERVER_PORT --profile fast --seed 0

I/O: two TCP ports of the loopback. It is a process of its own: the times of many requests are to overlap. Whoever
started it changes and asks it through the control port, a JSON object a line: see `simulated.SimulatedCloud`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from tests.stores.cloud.faults import CloudFault, FaultRule, Throttle, met_rule, refusal, with_clock_off
from tests.stores.cloud.http1 import Message, NotHttpError, answer_in, head_in, request_in
from tests.stores.cloud.profiles import REFUSED, Profile, named_profile
from tests.stores.cloud.request_kinds import StoreRequest

CHUNK_BYTES = 1 << 18
CONDITION_STATUSES = {304, 409, 412}
"""Answers that a condition was not met: S3 says 412, Azure 409 where a blob exists."""
TIMER_S = 0.0005
"""The time by which timers of asyncio are late on average: epoll waits for whole milliseconds."""
TIMES_KEPT = 100_000
MEAN_OF = 20
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BEFORE_SERVER = {
    CloudFault.SLOW_DOWN: refusal(503, "SlowDown"),
    CloudFault.DENY: refusal(403, "AccessDenied"),
    CloudFault.LOSE_REQUEST: None,
}
"""What is answered without the server."""


@dataclass
class Counts:
    """What was asked since the last reset.

    requests        by prefix and kind, those that were throttled or met a fault included
    statuses        of what was answered
    times_ms        what requests took here, the newest ones by kind
    slower          requests for which the server itself took longer than what was drawn
    """

    requests: dict[str, Counter[str]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    times_ms: dict[str, deque[float]] = field(default_factory=dict)
    sent_bytes: int = 0
    received_bytes: int = 0
    throttled: int = 0
    slower: int = 0

    def to_json(self) -> dict[str, object]:
        times = {kind: sorted(values) for kind, values in self.times_ms.items()}
        return {
            "requests": self.requests,
            "statuses": self.statuses,
            "faults": self.faults,
            "p50_ms": {kind: values[len(values) // 2] for kind, values in times.items()},
            "p99_ms": {kind: values[len(values) * 99 // 100] for kind, values in times.items()},
            "least_ms": {kind: values[0] for kind, values in times.items()},
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "throttled": self.throttled,
            "slower": self.slower,
        }


class _Upstream:
    """The connection to the server that belongs to one client's connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: Message) -> Message:
        """The server's answer. OSError, NotHttpError when there is none."""
        if self._reader is None or self._writer is None or self._reader.at_eof():
            self.close()
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(request.raw)
        buffer, method = bytearray(), request.head.parts[0]
        while True:
            data = await self._reader.read(CHUNK_BYTES)
            buffer += data
            answer = answer_in(buffer, method, is_closed=not data)
            while answer is not None and answer.head.status < 200:
                del buffer[: len(answer.raw)]
                answer = answer_in(buffer, method, is_closed=not data)
            if answer is not None:
                return answer
            if not data:
                raise ConnectionResetError("the server ended the connection")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._reader = self._writer = None


class Relay:
    """The state of a simulated cloud, which connections share."""

    def __init__(self, server_port: int, profile: Profile, seed: int, prefix_depth: int) -> None:
        """`prefix_depth`: folders of a key by which requests are counted and throttled; 0: the bucket as a whole."""
        self._server_port = server_port
        self._random = random.Random(seed)
        self._prefix_depth = prefix_depth
        self._counts = Counts()
        self._rules: list[FaultRule] = []
        self._clock_off_s = 0.0
        self._server_s: dict[str, float] = {}
        self._released = asyncio.Event()
        self._set_profile(profile)

    def _set_profile(self, profile: Profile) -> None:
        self._profile = profile
        self._throttle = Throttle(profile.writes_per_s, profile.reads_per_s)

    # -- clients --------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, to its end."""
        upstream, buffer = _Upstream(self._server_port), bytearray()
        with suppress(OSError, NotHttpError):
            while (request := await _next_request(reader, writer, buffer)) is not None:
                answer = await self._answer(request, upstream)
                if answer is None:
                    break
                self._counts.sent_bytes += len(answer)
                writer.write(answer)
                await writer.drain()
        upstream.close()
        writer.close()

    async def _answer(self, message: Message, upstream: _Upstream) -> bytes | None:
        """The bytes to send at the drawn time, or when the server is ready; None ends the connection."""
        clock = asyncio.get_running_loop().time
        begun_s, z = clock(), self._random.gauss(0.0, 1.0)
        request = StoreRequest.of(message.head, message.body)
        prefix = request.prefix(self._prefix_depth)
        counts = self._counts
        counts.requests.setdefault(prefix, Counter())[request.kind] += 1
        counts.received_bytes += len(message.raw)
        rule = met_rule(self._rules, request, self._random.random())
        refused_ms = self._profile.request_ms(REFUSED, z)
        drawn_ms = self._profile.request_ms(request.kind, z)
        if not self._throttle.admits(request, prefix, begun_s):
            counts.throttled += 1
            return await self._refused(BEFORE_SERVER[CloudFault.SLOW_DOWN], refused_ms)
        if rule is not None:
            counts.faults[rule.fault.name] += 1
            if rule.fault in BEFORE_SERVER:
                return await self._refused(BEFORE_SERVER[rule.fault], refused_ms)
        least_s = min(drawn_ms, refused_ms) / 1_000  # whatever the answer will be
        await _pause(min(least_s / 2, least_s - 2 * self._server_s.get(request.kind, 0.0)))
        asked_s = clock()
        answer = await self._applied(message, upstream, rule)
        if rule is None:
            self._note_server_s(request.kind, clock() - asked_s)
        counts.statuses[str(answer.head.status)] += 1
        if answer.head.status in CONDITION_STATUSES:
            drawn_ms = refused_ms
        rest_s = begun_s + drawn_ms / 1_000 - clock()
        counts.slower += rest_s < 0
        await _pause(rest_s)
        counts.times_ms.setdefault(request.kind, deque(maxlen=TIMES_KEPT)).append((clock() - begun_s) * 1_000)
        if rule is not None and rule.fault is CloudFault.LOSE_ANSWER:
            return None
        if rule is not None and rule.fault is CloudFault.FAIL_AFTER:
            return refusal(500, "InternalError")
        return with_clock_off(answer, self._clock_off_s)

    def _note_server_s(self, kind: str, took_s: float) -> None:
        """What a request takes at the server, in the mean of the last ones: short times are to hold for it, too."""
        known_s = self._server_s.get(kind, took_s)
        self._server_s[kind] = known_s + (took_s - known_s) / MEAN_OF

    async def _refused(self, answer: bytes | None, ms: float) -> bytes | None:
        await _pause(ms / 1_000)
        if answer is not None:
            self._counts.statuses[answer.split(b" ", 2)[1].decode()] += 1
        return answer

    async def _applied(self, message: Message, upstream: _Upstream, rule: FaultRule | None) -> Message:
        if rule is not None and rule.fault is CloudFault.LATE:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), rule.after_ms / 1_000)
            answer = await upstream.ask(message)
            self._counts.faults["APPLIED_LATE"] += 1
            return answer
        if rule is not None and rule.fault is CloudFault.DOUBLE:
            await upstream.ask(message)
        return await upstream.ask(message)

    # -- control --------------------------------------------------------------------------------------------

    async def serve_control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Orders, a JSON object a line, each answered by one."""
        with suppress(OSError):
            while line := await reader.readline():
                try:
                    order = json.loads(line)
                    answer = {"is_done": True, **self._orders[order.pop("do")](order)}
                except (ValueError, KeyError) as reason:
                    answer = {"is_done": False, "error": f"{type(reason).__name__}: {reason}"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    @property
    def _orders(self) -> Mapping[str, Callable[[Mapping[str, object]], Mapping[str, object]]]:
        return {
            "counts": lambda _: self._counts.to_json(),
            "reset": self._reset,
            "fault": self._add_fault,
            "no faults": self._no_faults,
            "release": self._release,
            "profile": self._change_profile,
            "rates": self._change_rates,
            "clock": self._change_clock,
        }

    def _reset(self, _order: Mapping[str, object]) -> Mapping[str, object]:
        self._counts = Counts()
        return {}

    def _add_fault(self, order: Mapping[str, object]) -> Mapping[str, object]:
        self._rules.append(FaultRule.from_json(order))
        return {}

    def _no_faults(self, _order: Mapping[str, object]) -> Mapping[str, object]:
        self._rules.clear()
        return self._release({})

    def _release(self, _order: Mapping[str, object]) -> Mapping[str, object]:
        self._released.set()
        self._released = asyncio.Event()
        return {}

    def _change_profile(self, order: Mapping[str, object]) -> Mapping[str, object]:
        self._set_profile(named_profile(str(order["name"])))
        return {}

    def _change_rates(self, order: Mapping[str, object]) -> Mapping[str, object]:
        self._throttle = Throttle(float(str(order["writes_per_s"])), float(str(order["reads_per_s"])))
        return {}

    def _change_clock(self, order: Mapping[str, object]) -> Mapping[str, object]:
        self._clock_off_s = float(str(order["off_s"]))
        return {}


async def _next_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, buffer: bytearray
) -> Message | None:
    """The next request of a connection; None at its end."""
    is_continued = False
    while True:
        request = request_in(buffer)
        if request is not None:
            del buffer[: len(request.raw)]
            return request
        found = head_in(buffer)
        if found is not None and not is_continued and found[0].get("expect").lower() == "100-continue":
            is_continued = True
            writer.write(CONTINUE)
        data = await reader.read(CHUNK_BYTES)
        if not data:
            return None
        buffer += data


async def _pause(seconds: float) -> None:
    if seconds > TIMER_S:
        await asyncio.sleep(seconds - TIMER_S)


async def _run(given: argparse.Namespace) -> None:
    relay = Relay(given.server_port, named_profile(given.profile), given.seed, given.prefix_depth)
    control = await asyncio.start_server(relay.serve_control, "127.0.0.1", given.control_port)
    clients = await asyncio.start_server(relay.serve, "127.0.0.1", given.port, backlog=1_000, limit=CHUNK_BYTES)
    await asyncio.gather(control.serve_forever(), clients.serve_forever())


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.stores.cloud.relay", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("control_port", type=int)
    parser.add_argument("server_port", type=int)
    parser.add_argument("--profile", default="fast")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prefix-depth", type=int, default=0)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
