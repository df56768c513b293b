"""TLS contexts by `ssl.*`: key, certificate chain and trusted certificates in PEM files. I/O: these files.

Source: Kafka's `DefaultSslEngineFactory`, `SslFactory` (KIP-651).
"""

from __future__ import annotations

import ssl
from pathlib import Path

from stratalog.replication.config import BrokerConfig
from stratalog.storage.errors import InvalidConfigError

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(config: BrokerConfig, *, asks_for_certificates: bool) -> ssl.SSLContext:
    """The context of a listener. InvalidConfigError in Kafka's words for a file that cannot be read.

    asks_for_certificates  `ssl.client.auth` counts: on listeners with SSL, not on those with SASL_SSL, as in Kafka
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wanted = [VERSIONS[each] for each in config.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(wanted), max(wanted)
    _load_key(context, config)
    if asks_for_certificates and config.ssl_client_auth != "none":
        context.verify_mode = CLIENT_AUTH[config.ssl_client_auth]
        _load_trusted(context, config.ssl_truststore_location)
    return context


def _load_key(context: ssl.SSLContext, config: BrokerConfig) -> None:
    path = config.ssl_keystore_location
    if not path:
        raise InvalidConfigError("SSL key store is not specified: ssl.keystore.location names a PEM file")
    try:
        _check_readable(path)
        # always with a password: without one an encrypted key would be asked for on the terminal
        context.load_cert_chain(path, password=config.ssl_key_password)
    except (OSError, ValueError) as reason:
        raise InvalidConfigError(f"Failed to load PEM SSL keystore {path}: {_text(reason)}") from reason


def _load_trusted(context: ssl.SSLContext, path: str) -> None:
    if not path:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        _check_readable(path)
        context.load_verify_locations(path)
    except (OSError, ValueError) as reason:
        raise InvalidConfigError(f"Failed to load PEM SSL truststore {path}: {_text(reason)}") from reason


def _check_readable(path: str) -> None:
    with Path(path).open("rb") as file:
        file.read(1)


def _text(reason: OSError | ValueError) -> str:
    return getattr(reason, "strerror", None) or str(reason)
