"""The options of a sink in transactions, as one value. Pure.

`kafka.transactional.id` (or `transactional.id`) makes each batch one transaction. Kafka's configs of producers and of
connections have the prefix `kafka.`; `stratalog.listener` is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stratalog.clients.config import ProducerConfig
from stratalog.clients.spark.group.options import CONNECTION_OPTIONS, LISTENER
from stratalog.clients.spark.group.options import OPTION_NAMES as OF_MEMBERS
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.storage.errors import InvalidConfigError

TRANSACTIONAL_ID = "kafka.transactional.id"
_SHORT_ID = "transactional.id"
_PRODUCER_NAMES = (
    *("transaction.timeout.ms", "request.timeout.ms", "retry.backoff.ms", "delivery.timeout.ms", "max.block.ms"),
    "acks",
)
"""Kafka's producer configs that a transaction uses."""
OPTION_NAMES = frozenset(
    {TRANSACTIONAL_ID, _SHORT_ID, LISTENER}
    | {f"kafka.{name}" for name in _PRODUCER_NAMES}
    | set(CONNECTION_OPTIONS.values())
)
"""The names, in lower case, of the options that a sink in transactions has and another has not."""
OF_MEMBERS_AND_TRANSACTIONS = OPTION_NAMES | OF_MEMBERS
"""Those, and the options that a query in a group has."""
TRANSACTION_TIMEOUT_MS = 30_000
"""Default of `kafka.transaction.timeout.ms`, half of Kafka's: a transaction is open only while a batch is committed,
and members of a group that take its partitions over wait for one that was left open."""


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """The producer of a sink's transactions.

    connection  how brokers are called, and `listener` at which of their listeners; "" as `RemoteCluster` chooses
    """

    producer: ProducerConfig
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)
    listener: str = ""

    @property
    def transactional_id(self) -> str:
        return self.producer.transactional_id

    @property
    def names(self) -> frozenset[str]:
        """The names, in lower case, of the options that a sink in transactions has and another has not."""
        return OPTION_NAMES


def transaction_options(params: Mapping[str, str]) -> TransactionOptions | None:
    """The transactions of a sink, None without `kafka.transactional.id`; `params` by lower-case names.

    InvalidConfigError for two ids, an empty one, and a config that no transactional producer may have.
    """
    given_id = params.get(TRANSACTIONAL_ID, params.get(_SHORT_ID))
    if given_id is None:
        return None
    if given_id != params.get(_SHORT_ID, given_id):
        raise InvalidConfigError(
            f"{TRANSACTIONAL_ID}={given_id} and {_SHORT_ID}={params[_SHORT_ID]} are two names of one option"
        )
    if not given_id.strip():
        raise InvalidConfigError(f"{TRANSACTIONAL_ID} must not be empty: name one, or leave the option out")
    given = {name: params[f"kafka.{name}"] for name in _PRODUCER_NAMES if f"kafka.{name}" in params}
    connection = {name: params[option] for name, option in CONNECTION_OPTIONS.items() if option in params}
    ConnectionConfig.from_settings(connection, {})
    defaults = {"transactional.id": given_id, "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
    producer = ProducerConfig.from_settings(defaults | given, {})
    return TransactionOptions(producer, connection, params.get(LISTENER, ""))
