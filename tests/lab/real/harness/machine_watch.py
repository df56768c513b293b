"""Pauses of the machine itself, as of a virtual machine while its host saves it: the brokers do not cause them."""

from __future__ import annotations

import time

from tests.lab.real.harness.parties import Party

TICK_S = 0.1
STALL_S = 1.0


class MachineWatch(Party):
    """A clock that ticks. `stalls` are (monotonic time in ms, seconds late) of ticks more than a second late."""

    def __init__(self) -> None:
        super().__init__("machine-watch")
        self.stalls: list[tuple[float, float]] = []

    def turn(self) -> None:
        begun = time.monotonic()
        time.sleep(TICK_S)
        self.note(begun, time.monotonic())

    def note(self, begun: float, ended: float) -> None:
        """A tick from `begun` to `ended`, in seconds."""
        late_s = ended - begun - TICK_S
        if late_s > STALL_S:
            self.stalls.append((begun * 1000, late_s))

    def stalled_s(self, since_ms: float = 0.0) -> float:
        """How long it stood still from `since_ms` on, in total."""
        return sum(late_s for at_ms, late_s in self.stalls if at_ms + late_s * 1000 >= since_ms)
