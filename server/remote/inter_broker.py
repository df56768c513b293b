"""How brokers of a cluster call each other: the listener, its protocol and their login, by a broker's settings. Pure.

Each broker logs in with `username` and `password` of its own `sasl.jaas.config`, and shows the certificate of its
`ssl.keystore.location`, as in Kafka.
"""

from __future__ import annotations

from stratalog.replication.config import BrokerConfig
from stratalog.server.endpoint.listeners import SecurityProtocol, inter_broker_name, parse_listeners, parse_protocol_map
from stratalog.server.endpoint.security.jaas import SASL_JAAS_CONFIG, login_of
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.storage.errors import InvalidConfigError

MECHANISM = "sasl.mechanism.inter.broker.protocol"


def inter_broker_protocol(config: BrokerConfig) -> SecurityProtocol:
    """The protocol of the listener at which brokers call each other. InvalidConfigError for one that is not there."""
    protocols = parse_protocol_map(config.listener_security_protocol_map)
    name = inter_broker_name(config.inter_broker_listener_name, config.security_inter_broker_protocol)
    if name:
        found = protocols.get(name)
        if found is None:
            raise InvalidConfigError(f"No security protocol defined for listener {name}")
        return found
    listeners = parse_listeners(config.listeners, protocols)
    return listeners[0].protocol if listeners else SecurityProtocol.PLAINTEXT


def lacks_login(config: BrokerConfig) -> bool:
    """Whether brokers call each other with SASL, and no mechanism is named: enough for those of one process alone."""
    return inter_broker_protocol(config).has_sasl and not config.sasl_mechanism_inter_broker_protocol


def inter_broker_connections(config: BrokerConfig) -> ConnectionConfig:
    """The configs of connections to other brokers. InvalidConfigError for a login that is missing."""
    protocol = inter_broker_protocol(config)
    given: dict[str, object] = {"security.protocol": protocol.value}
    if protocol.has_sasl:
        mechanism = config.sasl_mechanism_inter_broker_protocol
        if mechanism not in config.sasl_enabled_mechanisms:
            raise InvalidConfigError(
                f"{MECHANISM} must be included in sasl.enabled.mechanisms when SASL is used for inter-broker "
                "communication"
            )
        username, password = login_of(config.sasl_jaas_config)
        if not username:
            raise InvalidConfigError(f"{SASL_JAAS_CONFIG} names no username and password for calls between brokers")
        given |= {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
    if protocol.is_encrypted:
        names = ("ssl.keystore.location", "ssl.key.password", "ssl.truststore.location")
        algorithm = "ssl.endpoint.identification.algorithm"
        settings = config.properties()
        given |= {name: settings[name] for name in (*names, algorithm)}
    return ConnectionConfig.from_settings(given, {})
