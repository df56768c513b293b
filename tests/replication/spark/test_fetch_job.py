"""What planners and executors of Spark's are told of a broker."""

from __future__ import annotations

from stratalog.replication.config import BROKER_CONFIGS, BrokerConfig
from stratalog.replication.follower.partitions import FetchJob
from stratalog.replication.spark.fetch import job_of, job_text


def test_no_password_leaves_the_driver() -> None:
    secret = {key.name: f"secret of {key.name}" for key in BROKER_CONFIGS if key.type == "PASSWORD"}
    assert secret.keys() >= {"sasl.jaas.config", "ssl.key.password"}
    config = BrokerConfig.from_properties({**secret, "num.replica.fetchers": 3})
    job = FetchJob(1, 12, "root", "metadata", config)
    text = job_text(job)
    assert not any(each in text for each in secret.values())
    found = job_of(text)
    assert job_text(found) == text
    assert found.config.num_replica_fetchers == 3


def test_settings_without_passwords_differ_in_nothing_else() -> None:
    plain = BrokerConfig.from_properties({"num.partitions": 6})
    assert plain.without_passwords() is plain
    assert BrokerConfig.from_properties({"num.partitions": 6, "ssl.key.password": "x"}).without_passwords() == plain
