"""The addresses of a network's hosts, and the order of faults."""

from __future__ import annotations

import random
from itertools import islice

from tests.lab.real.hosts.network import Host, Network
from tests.lab.real.hosts.run import KINDS, drawn


def test_hosts_have_addresses_in_their_order() -> None:
    network = Network("lab", ["broker-1", "outside", "more"], {"outside": 2})
    assert network["broker-1"] == Host("lab-broker-1", ("10.77.0.1",))
    assert network["outside"].addresses == ("10.77.0.2", "10.77.0.3")
    assert network["more"].address == "10.77.0.4"
    assert network["more"].launcher == ("ip", "netns", "exec", "lab-more")


def test_each_kind_of_fault_comes_once_before_one_comes_again() -> None:
    kinds = list(islice(drawn(random.Random(3), KINDS), 2 * len(KINDS)))
    assert sorted(kinds[: len(KINDS)]) == sorted(kinds[len(KINDS) :]) == sorted(KINDS)
    assert kinds[: len(KINDS)] != kinds[len(KINDS) :]
