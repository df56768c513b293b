"""Whether a broker lives, is ready, may be restarted: tables of states and answers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, NO_LEADER, ConfigRecord
from stratalog.replication.metrics import RunState
from stratalog.server.metrics.health import REASONS_MAX, Health, OwnState, is_alive, is_ready, is_safe_to_restart
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, image_of, partition

LED = TopicPartition(TOPIC, 0)


def own(image: ClusterImage, broker_id: int = 1) -> OwnState:
    """A broker that runs and serves the first partition."""
    return OwnState(broker_id, image.brokers[broker_id].broker_epoch, RunState.RUNNING, None, False, {LED: ""})


HEALTHY = image_of((1, 2, 3), partition((1, 2, 3), 1, (1, 2, 3)))


@pytest.mark.parametrize(
    ("image", "changes", "reason"),
    [
        (HEALTHY, {}, ""),
        (HEALTHY, {"run_state": RunState.RECOVERY}, "broker 1 is recovery"),
        (HEALTHY, {"run_state": RunState.PENDING_CONTROLLED_SHUTDOWN}, "is pending controlled shutdown"),
        (HEALTHY, {"broker_epoch": 0}, "fenced, or its registration of epoch 0 is over"),
        (HEALTHY, {"is_root_dead": True}, "its own root answers no writes"),
        (HEALTHY, {"failures": {}}, f"{TOPIC}-0: leader epoch 5 has not begun"),
        (HEALTHY, {"failures": {LED: None}}, f"{TOPIC}-0: leader epoch 5 has not begun"),
        (HEALTHY, {"failures": {LED: "damaged"}}, f"{TOPIC}-0: damaged"),
        (image_of((1, 2), partition((2, 1), 2, (2,))), {}, f"{TOPIC}-0: broker 1 is not in the ISR [2] of leader 2"),
        (image_of((1, 2), partition((2, 1), 2, (2, 1))), {}, ""),
        (image_of((1, 2), replace(partition((2, 1), 2, (2,)), adding=(1,))), {}, ""),
        (image_of((1, 2), partition((2, 1), NO_LEADER, (2,))), {}, ""),
        (image_of((1, 2, 3), partition((2, 3), 2, (2,))), {}, ""),
    ],
    ids=[
        "healthy", "recovers", "leaves", "fenced", "root", "unknown leader", "leader not begun", "leader failed",
        "out of sync", "in sync", "is added", "another's partition is offline", "another's replica lags",
    ],
)  # fmt: skip
def test_a_broker_is_ready_by_its_own_state_alone(image: ClusterImage, changes: dict[str, object], reason: str) -> None:
    state = replace(own(image), **changes)  # type: ignore[arg-type]
    health = is_ready(state, image)
    assert health.is_ok == (not reason)
    assert reason in "".join(health.reasons)
    assert len(health.reasons) == bool(reason)


def test_a_broker_lives_until_it_has_stopped_for_good() -> None:
    state = own(HEALTHY)
    assert is_alive(replace(state, is_root_dead=True, run_state=RunState.RECOVERY)).is_ok
    assert is_alive(replace(state, stopped_by="another process took its place")).reasons == (
        "broker 1 has stopped: another process took its place",
    )


@pytest.mark.parametrize(
    ("replicas", "isr", "min_isr", "is_safe"),
    [
        ((1, 2, 3), (1, 2, 3), 2, True),
        ((1, 2, 3), (1, 2), 2, False),
        ((1, 2, 3), (2, 3), 2, True),
        ((1, 2, 3), (2,), 2, False),
        ((1, 2, 3), (1,), 1, False),
        ((1, 2), (1, 2), 2, True),
        ((1,), (1,), 1, True),
        ((1,), (1,), 2, True),
        ((2, 3), (2,), 2, True),
    ],
    ids=[
        "enough stay", "one too few stays", "it is outside", "already too few", "the last one", "never room",
        "single replica", "fewer replicas than asked", "not its partition",
    ],
)  # fmt: skip
def test_a_restart_is_safe_while_enough_replicas_stay_in_sync(
    replicas: tuple[int, ...], isr: tuple[int, ...], min_isr: int, is_safe: bool
) -> None:
    """The table is `KafkaAvailability.canRoll`'s."""
    image = image_of((1, 2, 3), partition(replicas, isr[0], isr))
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "min.insync.replicas", str(min_isr)))
    assert is_safe_to_restart(own(image), image).is_ok == is_safe


def test_a_broker_that_is_not_registered_cannot_tell_whether_it_may_go() -> None:
    assert not is_safe_to_restart(replace(own(HEALTHY), broker_epoch=0), HEALTHY).is_ok


def test_an_answer_counts_all_reasons_and_names_some_to_whoever_logged_in() -> None:
    health = Health("ready", tuple(f"t-{number}: lags" for number in range(30)))
    body = json.loads(health.to_json())
    assert (body["ready"], body["count"], len(body["reasons"])) == (False, 30, REASONS_MAX)
    assert json.loads(health.to_json(names_reasons=False)) == {"ready": False, "count": 30}
