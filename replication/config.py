"""A cluster's settings: Kafka's dotted names, defaults, ranges and units, as one frozen value. Pure.

TOML tables flatten to the same names, so `[replica.lag] time.max.ms = 10000` and `replica.lag.time.max.ms = 10000` are
equal. Names that begin with `stratalog.` have no counterpart in Kafka. A broker's identity (id, rack, root) is no
setting: `process/broker_properties.py`. Topic defaults are in `storage.topic_config.LogConfig`, whose names
conf/topics.toml lists.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from stratalog.replication.log_configs import LOG_CONFIGS, TopicDefaults, topic_defaults
from stratalog.storage.config_def import (
    ConfigDef,
    Validator,
    between,
    config_field,
    each_of,
    invalid_value,
    non_empty,
    one_of,
)
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.topic_config import INT_MAX

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"
"""The folder conf/: beside the rooms in a checkout and in an installed wheel alike."""

CLUSTER_TOML = CONF_DIR / "cluster.toml"
TOPICS_TOML = CONF_DIR / "topics.toml"
PRICES_TOML = CONF_DIR / "prices.toml"

TEXT_LINES, JSON_LINES = "text", "json"
"""Values of `stratalog.log.format`."""
ASYNCIO, UVLOOP = "asyncio", "uvloop"
"""Values of `stratalog.event.loop`."""
BIDIRECTIONAL = "bidirectional"
UPGRADES, DOWNGRADES = ("upgrade", BIDIRECTIONAL), ("downgrade", BIDIRECTIONAL)
MIGRATION_POLICIES = (BIDIRECTIONAL, "upgrade", "downgrade", "disabled")
"""Values of `group.consumer.migration.policy`, and those that allow either change."""
AUTHORIZER_CLASSES = ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "StandardAuthorizer")
"""Values of `authorizer.class.name`, besides empty: there is nothing to load other classes with."""


def parse_principals(text: str) -> frozenset[str]:
    """Principals between semicolons, as in `super.users`. InvalidConfigError for one without a type.

    >>> sorted(parse_principals(";  User:bob  ;  User:alice "))
    ['User:alice', 'User:bob']
    """
    principals = [each.strip() for each in text.split(";") if each.strip()]
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise InvalidConfigError(f"expected a string in format principalType:principalName but got {principal}")
    return frozenset(principals)


def int32(low: int) -> Validator:
    """The range of Kafka's type INT, from `low` up."""

    def validate(value: int) -> int:
        if abs(value) > INT_MAX:
            raise ValueError("Not a number of type INT")
        if value < low:
            raise ValueError(f"Value must be at least {low}")
        return value

    return validate


def _authorizer(text: str) -> str:
    name = text.strip()
    if name and name not in AUTHORIZER_CLASSES:
        raise ValueError(f"Class {name} could not be found; known: {AUTHORIZER_CLASSES[0]}")
    return name


def _principals(text: str) -> str:
    parse_principals(text)
    return text.strip()


def _text(value: str) -> str:
    """May be empty."""
    return value.strip()


def _one_or_none(*known: str) -> Validator:
    """One of the words, or nothing."""
    check = one_of(*known)
    return lambda value: check(value) if value else value


def _words(*known: str) -> Validator:
    """Any of the known words, or with none known any words; may be empty."""
    check = each_of(*known) if known else tuple
    return lambda listed: tuple(check(word for word in listed if word))


def _int(default: int, unit: str, doc: str, low: int = 1) -> Any:
    return config_field("INT", default, unit, doc, int32(low))


def _ms(default: int, doc: str, low: int = 1) -> Any:
    return _int(default, "ms", doc, low)


def _boolean(default: bool, doc: str) -> Any:
    return config_field("BOOLEAN", default, "", doc)


def _string(default: str, doc: str, validator: Validator = non_empty) -> Any:
    return config_field("STRING", default, "", doc, validator)


def _list(default: tuple[str, ...], doc: str, *known: str) -> Any:
    return config_field("LIST", default, "", doc, _words(*known))


def _password(doc: str) -> Any:
    return config_field("PASSWORD", "", "", doc, _text)


LOGIN_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The settings that all brokers of a cluster share.

    Building one checks every range; InvalidConfigError names the setting that is out of it.
    """

    add_partitions_to_txn_retry_backoff_max_ms: int = _ms(
        100, "time for which a partition's leader asks again to add the partition to a transaction", 0
    )
    add_partitions_to_txn_retry_backoff_ms: int = _ms(
        20, "pause before that, while the markers of the producer's last transaction are under way"
    )
    advertised_listeners: str = _string(
        "", "where clients reach the listeners, as NAME://host:port,...; empty: at the same hosts and ports", _text
    )
    allow_everyone_if_no_acl_found: bool = _boolean(False, "with an authorizer: allow operations without any ACL")
    authorizer_class_name: str = _string(
        "",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer: ACLs count; empty: everybody may do everything",
        _authorizer,
    )
    auto_create_topics_enable: bool = _boolean(True, "a Metadata request that allows it creates an unknown topic")
    auto_leader_rebalance_enable: bool = _boolean(True, "move leaderships back to preferred replicas at an imbalance")
    broker_heartbeat_interval_ms: int = _ms(2_000, "pause between two writes of a broker's session object")
    broker_session_timeout_ms: int = _ms(9_000, "a session object without a change for this long: its broker is dead")
    connection_failed_authentication_delay_ms: int = _ms(
        100, "a client that could not authenticate is answered, and closed, after this time", 0
    )
    connections_max_idle_ms: int = _ms(600_000, "a client's connection without a request for this long is closed")
    connections_max_reauth_ms: int = _ms(
        0, "a SASL client that has not authenticated again within this time is closed at its next request; 0: none", 0
    )
    controlled_shutdown_enable: bool = _boolean(True, "move leaderships away before a broker stops")
    default_replication_factor: int = _int(1, "replicas", "of a topic created without a replication factor")
    delete_topic_enable: bool = _boolean(True, "allow topics to be deleted")
    fetch_max_bytes: int = _int(57_671_680, "bytes", "the most that a Fetch response holds, but for one batch", 1_024)
    group_consumer_assignment_interval_ms: int = _ms(1_000, "least time between two assignments of a modern group", 0)
    group_consumer_heartbeat_interval_ms: int = _ms(5_000, "pause between two heartbeats of a modern group's member")
    group_consumer_max_assignment_interval_ms: int = _ms(
        15_000, "most consumer.assignment.interval.ms that a modern group may be given", 0
    )
    group_consumer_max_heartbeat_interval_ms: int = _ms(
        15_000, "most consumer.heartbeat.interval.ms that a modern group may be given"
    )
    group_consumer_max_session_timeout_ms: int = _ms(
        60_000, "most consumer.session.timeout.ms that a modern group may be given"
    )
    group_consumer_max_size: int = _int(INT_MAX, "members", "members of one modern group; further ones are refused")
    group_consumer_migration_policy: str = _string(
        BIDIRECTIONAL, "changes of protocol of groups with members: upgrade from classic, downgrade, both or disabled",
        one_of(*MIGRATION_POLICIES),
    )  # fmt: skip
    group_consumer_min_assignment_interval_ms: int = _ms(
        0, "least consumer.assignment.interval.ms that a modern group may be given", 0
    )
    group_consumer_min_heartbeat_interval_ms: int = _ms(
        5_000, "least consumer.heartbeat.interval.ms that a modern group may be given"
    )
    group_consumer_min_session_timeout_ms: int = _ms(
        45_000, "least consumer.session.timeout.ms that a modern group may be given"
    )
    group_consumer_session_timeout_ms: int = _ms(45_000, "a modern group's member silent for this long is removed")
    group_initial_rebalance_delay_ms: int = _ms(3_000, "wait for members before a group's first rebalance", 0)
    group_max_session_timeout_ms: int = _ms(1_800_000, "longest session timeout of a classic group's member")
    group_max_size: int = _int(INT_MAX, "members", "members of one classic group; further ones are refused")
    group_min_session_timeout_ms: int = _ms(6_000, "shortest session timeout of a classic group's member")
    inter_broker_listener_name: str = _string(
        "", "name of the listener at which brokers in other processes call this one; empty: the first one", _text
    )
    leader_imbalance_check_interval_seconds: int = _int(300, "s", "pause between two checks of the balance of leaders")
    leader_imbalance_per_broker_percentage: int = _int(
        10, "%", "leaderships move back when more than this share of a broker's preferred partitions is led by others"
    )
    listener_security_protocol_map: str = _string(
        "", "security protocol of each listener name, as INSIDE:PLAINTEXT,OUTSIDE:SSL", _text
    )
    listeners: str = _string(
        "", "where Kafka clients connect, as PLAINTEXT://localhost:9092; port 0 is a free one; empty: nowhere", _text
    )
    log_dir: str = _string(
        "logs",
        "folder of state-change.log and other text logs: below the cluster's folder, or the root of a broker process",
    )
    log_retention_check_interval_ms: int = _ms(300_000, "pause between two checks for segments to delete")
    max_connections: int = _int(INT_MAX, "connections", "of all clients, to one process", 0)
    max_connections_per_ip: int = _int(INT_MAX, "connections", "of one address", 0)
    max_connections_per_ip_overrides: str = _string("", "the same for some addresses, as 10.0.0.7:5,10.0.0.8:9", _text)
    max_incremental_fetch_session_cache_slots: int = _int(1_000, "sessions", "fetch sessions of clients, per broker", 0)
    max_request_partition_size_limit: int = _int(2_000, "partitions", "the most in a DescribeTopicPartitions response")
    num_io_threads: int = _int(8, "threads", "for clients' requests that read storage or wait for it, per broker")
    num_network_threads: int = _int(1, "threads", "that read requests of clients and send answers (Kafka: 3)")
    num_partitions: int = _int(1, "partitions", "of a topic created without a number of partitions")
    num_replica_fetchers: int = _int(1, "tasks", "fetch tasks of a follower, which share its partitions")
    offset_metadata_max_bytes: int = _int(4_096, "bytes", "longest note that may be committed with an offset", 0)
    offsets_commit_timeout_ms: int = _ms(5_000, "time to replicate a coordinator's records, else: outcome unknown")
    offsets_retention_check_interval_ms: int = _ms(600_000, "pause between two checks for expired offsets")
    offsets_retention_minutes: int = _int(
        10_080, "min", "committed offsets are kept this long after their group became empty or dropped the topic"
    )
    offsets_topic_num_partitions: int = _int(
        50, "partitions", "of __consumer_offsets, created when the first group needs it; should not change afterwards"
    )
    offsets_topic_replication_factor: int = _int(
        3, "replicas", "of __consumer_offsets: without so many live brokers there are no groups"
    )
    offsets_topic_segment_bytes: int = _int(
        104_857_600, "bytes", "size of a segment of __consumer_offsets: small ones are compacted and folded sooner", 14
    )
    queued_max_request_bytes: int = _int(
        268_435_456, "bytes", "memory of requests under way; beyond it clients are not read from (Kafka: -1, none)", -1
    )
    queued_max_requests: int = _int(500, "requests", "that wait for an io thread; beyond it clients are not read from")
    producer_id_expiration_ms: int = _ms(
        86_400_000, "a partition forgets a producer that is silent for this long and has no transaction open"
    )
    quota_window_num: int = _int(11, "samples", "over which the rates of clients with quotas are taken", 2)
    quota_window_size_seconds: int = _int(1, "s", "length of one of these samples")
    replica_fetch_backoff_ms: int = _ms(1_000, "pause after a failed fetch of a partition", 0)
    replica_fetch_max_bytes: int = _int(1_048_576, "bytes", "a follower's aim for one copy of one partition", 0)
    replica_lag_time_max_ms: int = _ms(10_000, "a follower not caught up for this long leaves the ISR (Kafka: 30000)")
    replica_selector_class: str = _string(
        RACK_AWARE, "the only one: who names a rack may read from a replica there (Kafka: none, all read from leaders)",
        one_of(RACK_AWARE),
    )  # fmt: skip
    sasl_enabled_mechanisms: tuple[str, ...] = _list(
        (), "of listeners with SASL, as SCRAM-SHA-512,OAUTHBEARER (Kafka: GSSAPI)", *SASL_MECHANISMS
    )
    sasl_jaas_config: str = _password(
        "users of PLAIN, and the broker's own login: org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="NAME" password="PASSWORD" user_NAME="PASSWORD" ...;'
    )
    sasl_mechanism_inter_broker_protocol: str = _string(
        "", "by which brokers log in to each other, as SCRAM-SHA-512 (Kafka: GSSAPI)", _one_or_none(*LOGIN_MECHANISMS)
    )
    sasl_oauthbearer_clock_skew_seconds: int = _int(30, "s", "tokens count this long before and after their times", 0)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = _list((), "audiences, one of which a token must name")
    sasl_oauthbearer_expected_issuer: str = _string("", "the issuer that a token must name; empty: any", _text)
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _ms(3_600_000, "the keys are fetched again after this time")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = _ms(10_000, "longest pause after a failed fetch of keys")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = _ms(100, "first pause after a failed fetch of keys")
    sasl_oauthbearer_jwks_endpoint_url: str = _string(
        "", "where the keys are that sign tokens (JWKS): https:// or file://", _text
    )
    sasl_oauthbearer_sub_claim_name: str = _string("sub", "the claim of a token that names its user")
    sasl_server_max_receive_size: int = _int(524_288, "bytes", "largest request before a client is authenticated")
    security_inter_broker_protocol: str = _string(
        "",
        "instead of inter.broker.listener.name: the listener of this name, as SASL_SSL (Kafka: PLAINTEXT)",
        _one_or_none("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    socket_listen_backlog_size: int = _int(50, "connections", "that wait to be accepted")
    socket_request_max_bytes: int = _int(104_857_600, "bytes", "largest request; a larger one closes its connection")
    ssl_client_auth: str = _string(
        "none",
        "certificates of clients on listeners with SSL: none, requested or required",
        one_of("required", "requested", "none"),
    )
    ssl_enabled_protocols: tuple[str, ...] = _list(TLS_VERSIONS, "versions of TLS", *TLS_VERSIONS)
    ssl_endpoint_identification_algorithm: str = _string(
        "https",
        "a broker that calls another compares its name with its certificate; empty: it does not",
        _one_or_none("https"),
    )
    ssl_key_password: str = _password("of the private key in ssl.keystore.location, if that is encrypted")
    ssl_keystore_location: str = _string("", "PEM file with the private key and the certificate chain", _text)
    ssl_keystore_type: str = _string("PEM", "the only type of key store (Kafka: JKS)", one_of("PEM"))
    ssl_principal_mapping_rules: str = _string(
        "DEFAULT", "users of certificates, as RULE:^CN=(.*?),.*$/$1/L,DEFAULT; by default the whole name"
    )
    ssl_truststore_location: str = _string(
        "", "PEM file of the certificates that clients' certificates are signed by; empty: the system's", _text
    )
    ssl_truststore_type: str = _string("PEM", "the only type of trust store (Kafka: JKS)", one_of("PEM"))
    super_users: str = _string("", "principals that ACLs do not bind, as User:alice;User:bob", _principals)
    transaction_max_timeout_ms: int = _ms(900_000, "the longest transaction.timeout.ms of a producer")
    transaction_state_log_min_isr: int = _int(2, "replicas", "in-sync replicas that __transaction_state needs")
    transaction_state_log_num_partitions: int = _int(
        50, "partitions", "of __transaction_state, created for the first transactional producer"
    )
    transaction_state_log_replication_factor: int = _int(
        3, "replicas", "of __transaction_state: without so many live brokers there are no transactions"
    )
    transaction_state_log_segment_bytes: int = _int(104_857_600, "bytes", "size of a __transaction_state segment", 14)
    transactional_id_expiration_ms: int = _ms(604_800_000, "a transactional id without use for this long is removed")
    unclean_leader_election_enable: bool = _boolean(False, "when no ISR member lives, another may lead; loses records")

    stratalog_allow_plaintext: bool = _boolean(
        False, "listeners that other machines reach may be without encryption, with a login or without"
    )
    stratalog_audit_queue_events: int = _int(
        100_000, "events", "that wait for the audit topic, per broker; further ones are dropped, and counted"
    )
    stratalog_audit_topic: str = _string(
        "", "topic of administrators' requests, denials, logins and refused frames; empty: they are not kept", _text
    )
    stratalog_audit_topic_replication_factor: int = _int(
        3, "replicas", "of that topic, if it is created for the first event: so many live brokers are needed"
    )
    stratalog_checkpoint_interval_ms: int = _ms(
        600_000, "a checkpoint is written when files wait this long for one, so that they can be deleted"
    )
    stratalog_encoded_tail_cache_bytes: int = _int(
        134_217_728, "bytes", "memory for batches in Kafka's bytes: new ones, and a quarter for what was read ahead", 0
    )
    stratalog_encoded_tail_cache_ms: int = _ms(120_000, "batches stay in that memory for so long, if there is room")
    stratalog_event_loop: str = _string(
        ASYNCIO, "of network threads; uvloop: that of the package of this name, which has to be installed",
        one_of(ASYNCIO, UVLOOP),
    )  # fmt: skip
    stratalog_fetch_retry_ms: int = _ms(
        30_000, "first pause before a follower in threads tries Spark again; it doubles up to 64 times this", 100
    )
    stratalog_fetch_session_ms: int = _ms(300_000, "length of one fetch session, which is one micro-batch", 100)
    stratalog_fetch_sessions: int = _int(
        2, "queries", "overlapping fetch sessions of a follower; the second hides the gap between two micro-batches"
    )
    stratalog_hedged_requests_percent: int = _int(
        3,
        "percent",
        "on object stores so many uploads of small data files are repeated while they are slow; 0: none",
        0,
    )
    stratalog_inbox_poll_max_ms: int = _ms(1_000, "without watchable storage: longest pause between polls of the inbox")
    stratalog_inbox_poll_ms: int = _ms(
        20, "without watchable storage: pause between polls of the inbox while it is used; it grows with the time since"
    )
    stratalog_inbox_principal: str = _string(
        "User:ANONYMOUS", "the user from whom Kafka's requests in the inbox are, for ACLs; empty: they stay unanswered",
        _text,
    )  # fmt: skip
    stratalog_lag_history_interval_ms: int = _ms(
        300_000, "pause between two rows of a group and partition in the table of past lags; 0: there is none", 0
    )
    stratalog_lag_history_retention_ms: int = _ms(604_800_000, "rows stay in that table for so long, in whole days")
    stratalog_lag_interval_ms: int = _ms(5_000, "pause between two measurements of how far groups are behind", 100)
    stratalog_log_format: str = _string(
        TEXT_LINES, "of text logs: text, or json, an object a line", one_of(TEXT_LINES, JSON_LINES)
    )
    stratalog_login_max_ms: int = _ms(
        60_000, "a client of a listener with a login that has not logged in this long after it connected is closed"
    )
    stratalog_metadata_backup_interval_ms: int = _ms(
        60_000, "least time between two copies of the metadata log, while it changes, to a broker's own root; 0 = none",
        0,
    )  # fmt: skip
    stratalog_metadata_poll_max_ms: int = _ms(
        500, "without watchable storage: longest pause between two polls for metadata"
    )
    stratalog_metadata_poll_ms: int = _ms(
        20, "without watchable storage: pause between two polls for metadata after a change; it grows with the time "
        "since, or since the last record",
    )  # fmt: skip
    stratalog_metrics_authentication: str = _string(
        "basic", "at an address that other machines reach, /metrics asks for a login (basic) or not (none)",
        one_of("basic", "none"),
    )  # fmt: skip
    stratalog_metrics_host: str = _string(
        "localhost", "address of /metrics, /livez, /readyz and /safe-to-restart; 0.0.0.0: all", non_empty
    )
    stratalog_metrics_password: str = _password("of stratalog.metrics.user; empty: users with SCRAM log in")
    stratalog_metrics_port: int = _int(
        0, "", "TCP port of /metrics for Prometheus, and of the health paths; 0 = none. In a process with several "
        "brokers it is the first one's, and each further broker has the next port", 0,
    )  # fmt: skip
    stratalog_metrics_user: str = _string("metrics", "the user of that password", non_empty)
    stratalog_prices: tuple[str, ...] = _list(
        (), "lists of conf/prices.toml, or paths of files like it, by which requests to stores are priced; where none "
        "of them is for a root's scheme, the default there holds",
    )  # fmt: skip
    stratalog_produce_max_decoded_bytes: int = _int(
        104_857_600, "bytes", "decompressed records of one Produce request; batches beyond it are refused"
    )
    stratalog_progress_poll_max_ms: int = _ms(500, "without watchable storage: longest pause between polls of progress")
    stratalog_progress_poll_min_ms: int = _ms(1, "without watchable storage: shortest pause between polls", 0)
    stratalog_reading_process_bytes: int = _int(
        8_388_608, "bytes", "what clients that read on read of old records in 10 s before a process reads for them; "
        "0 = never", 0,
    )  # fmt: skip
    stratalog_request_max_bytes: int = _int(
        8_388_608, "bytes", "largest request but Produce (socket.request.max.bytes); a larger one closes its connection"
    )
    stratalog_request_max_elements: int = _int(
        100_000, "elements", "of all arrays of a request together, as topics and partitions; more close its connection"
    )
    stratalog_request_max_name_bytes: int = _int(
        4_096, "bytes", "longest name in a request, as of a group or a member; a longer one closes its connection", 249
    )
    stratalog_requests_budget: float = config_field(
        "DOUBLE", 0.0, "dollars a day", "of each broker, for the requests of commits on object stores, by "
        "stratalog.prices: commits to a busy partition gather for it, at most stratalog.commit.latency.ms; 0: no bound",
        between(0, 1e9),
    )  # fmt: skip
    stratalog_scrub_interval_ms: int = _ms(86_400_000, "on a local disk every data file is read once in this time")
    stratalog_storage_settings_file: str = _string(
        "", "a TOML file of credentials and other settings of object stores, by URL; read again when it changes", _text
    )
    stratalog_tail_cache_bytes: int = _int(
        67_108_864, "bytes", "memory for the rows of the newest files, which consumers in the same process read", 0
    )
    stratalog_upkeep_interval_ms: int = _ms(1_000, "pause between two rounds of checkpoints, clean-up and merges")
    stratalog_upkeep_slowdown_count: int = _int(
        5_000, "files", "a log's appends are slowed while more files or commits than this wait for upkeep", 1_000
    )
    stratalog_upkeep_stop_count: int = _int(
        10_000, "files", "a log accepts one commit a second while this many files or commits wait for upkeep", 1_000
    )

    topic_defaults: TopicDefaults = ()
    """Topic configs that `log.retention.hours` and its like ask for, for topics that do not set them."""

    def __post_init__(self) -> None:
        for key in BROKER_CONFIGS:
            key.parse(getattr(self, key.field_name))
        self._at_most("broker.heartbeat.interval.ms", "broker.session.timeout.ms")
        self._at_most("connection.failed.authentication.delay.ms", "connections.max.idle.ms")
        for which in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms"):
            self._at_most(f"group.consumer.min.{which}", f"group.consumer.{which}")
            self._at_most(f"group.consumer.{which}", f"group.consumer.max.{which}")
        self._below("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms")
        self._at_most("group.min.session.timeout.ms", "group.max.session.timeout.ms")
        self._at_most("stratalog.progress.poll.min.ms", "stratalog.progress.poll.max.ms")
        self._at_most("stratalog.upkeep.slowdown.count", "stratalog.upkeep.stop.count")

    def _at_most(self, lower: str, upper: str) -> None:
        values = self.properties()
        if values[lower] > values[upper]:
            raise invalid_value(lower, values[lower], f"Value must be at most {upper}, which is {values[upper]}")

    def _below(self, lower: str, upper: str) -> None:
        values = self.properties()
        if values[lower] >= values[upper]:
            raise invalid_value(lower, values[lower], f"Value must be less than {upper}, which is {values[upper]}")

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Settings by Kafka's names, as TOML values or text; a name that is missing keeps its default.

        Kafka's configs for logs (`log.retention.hours` …, `replication.log_configs`) become `topic_defaults`.
        Raises InvalidConfigError for an unknown name or a value outside its range.

        >>> BrokerConfig.from_properties({"num.partitions": "6"}).num_partitions
        6
        """
        rest = {name: value for name, value in properties.items() if name not in LOG_CONFIGS}
        return cls(**BROKER_CONFIGS.parse(rest), topic_defaults=topic_defaults(properties))

    @classmethod
    def from_toml(cls, text: str, overrides: Mapping[str, object] | None = None) -> Self:
        """The text of a cluster.toml, with single values replaced by `overrides` (Kafka names)."""
        return cls.from_properties(flatten_toml(text) | dict(overrides or {}))

    def without_passwords(self) -> Self:
        """The same settings without those of type PASSWORD, for processes that need none, such as Spark's executors."""
        defaults = {key.field_name: key.default for key in BROKER_CONFIGS if key.type == "PASSWORD"}
        has_any = any(getattr(self, name) != default for name, default in defaults.items())
        return replace(self, **defaults) if has_any else self

    def properties(self) -> dict[str, Any]:
        """Every setting by its Kafka name, in alphabetical order, those of `stratalog.` last."""
        return {key.name: getattr(self, key.field_name) for key in BROKER_CONFIGS}


BROKER_CONFIGS = ConfigDef.of("broker", BrokerConfig)
"""Every setting of `BrokerConfig`: for docs, `--help` and conf/cluster.toml."""


def flatten_toml(text: str) -> dict[str, object]:
    """TOML tables as dotted names: `[replica.lag] time.max.ms = 1` gives {"replica.lag.time.max.ms": 1}.

    Raises InvalidConfigError with the parser's line and column when the text is no TOML.
    """
    try:
        return _flatten(tomllib.loads(text), "")
    except tomllib.TOMLDecodeError as reason:
        raise InvalidConfigError(f"not a TOML file: {reason}") from reason


def _flatten(table: Mapping[str, object], prefix: str) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
