"""A broker of a cluster in memory behind a real socket with security."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from struct import pack
from typing import Any, Self

from stratalog.clients.admin.admin import Admin
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from stratalog.replication.metadata.scram import ScramMechanism, ScramUpsertion, alter_credentials
from stratalog.server.endpoint.admission import RequestBound
from stratalog.server.endpoint.listeners import Listener, SecurityProtocol
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.endpoint.security.endpoint_security import EndpointSecurity
from stratalog.server.endpoint.socket_server import SocketServer, bind
from stratalog.server.handler import KafkaHandler
from stratalog.server.request.endpoint import Endpoint
from stratalog.server.view.cluster_view import ClusterView
from stratalog.wire.messages.frames import decode_response, encode_request
from stratalog.wire.messages.schema import request_type
from tests.clients.memory_cluster import ROOT, MemoryCluster

WAIT_S = 60
SALT = b"a salt of 16 byt"
JAAS = """org.apache.kafka.common.security.plain.PlainLoginModule required
    user_alice="secret" user_bob="bobs" user_root="r";"""
AUTHORIZER = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:root"}


class SecuredBroker:
    """Broker 1. There is a topic `t`, which alice alone may describe and read."""

    def __init__(self, protocol: str, settings: Mapping[str, object]) -> None:
        listener = Listener("CLIENTS", SecurityProtocol(protocol), "127.0.0.1", 0)
        config = BrokerConfig.from_properties({**AUTHORIZER, **settings})
        security = self._security = EndpointSecurity(config, [listener])
        self.cluster = MemoryCluster()
        self.cluster.create_topic("t")
        self.view = ClusterView(ROOT, stores=self.cluster.stores)
        allowed = (ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
        Admin(ROOT, view=self.view).create_acls([AclBinding(*allowed)])
        (bound,) = bind([listener])
        self.port = bound.listener.port
        self.address = f"127.0.0.1:{self.port}"
        self._io = ThreadPoolExecutor(2)
        self.handler = KafkaHandler(
            self.cluster,
            1,
            config=config,
            view=ClusterView(self.cluster, stores=self.cluster.stores),
            advertised={1: Endpoint("127.0.0.1", self.port)},
            io=self._io,
        )
        served = security.listener(
            bound.listener,
            self.handler,
            lambda user, mechanism: self.handler.broker.image(0).scram_credentials.get((user, mechanism)),
            self._io,
        )
        self._server = SocketServer(config, RequestBound(500))
        self.metrics = self._server.serve(1, [bound], self.handler, {} if served is None else {"CLIENTS": served})

    def connection(self) -> tuple[NetworkThread, Any]:
        """The one connection that is open, and its thread."""
        ((thread, connection),) = [(each, found) for each in self._server._threads for found in each.connections]
        return thread, connection

    def logins(self) -> tuple[int, int]:
        """How many clients have been authenticated, and how many were refused."""
        traffic = self.metrics.listener("CLIENTS")
        return traffic.successful_authentication, traffic.failed_authentication

    def add_user(self, user: str, password: str) -> None:
        """SCRAM credentials of both mechanisms."""
        for mechanism in ScramMechanism:
            salted = mechanism.salted_password(password, SALT, 4_096)
            change = ScramUpsertion(user, mechanism.code, 4_096, SALT, salted)
            self.view.propose(lambda image, change=change: alter_credentials(image, [], [change]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.stop()
        self.handler.close()
        self._io.shutdown()
        self._security.close()


class FrameClient:
    """Frames over a socket, with TLS if there is a context."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")

    def send(self, frame: bytes) -> None:
        self.socket.sendall(pack(">i", len(frame)) + frame)

    def ask(self, key: int, version: int, values: Mapping[str, Any] | None = None) -> Any:
        """The response; None when the connection ends instead."""
        self.send(encode_request(5, "test", values or {}, request_type(key, version)))
        frame = self.answer()
        if frame is None:
            return None
        correlation_id, response = decode_response(frame, key, version)
        assert correlation_id == 5
        return response

    def answer(self) -> bytes | None:
        head = self._exactly(4)
        return None if head is None else self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except (ConnectionResetError, ssl.SSLError):
                more = b""
            if not more:
                return None
            data += more
        return data

    def is_closed(self) -> bool:
        return self._exactly(1) is None
