"""The server of the console's web application. I/O: a listener, and its certificate, which is read again when it has
changed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from stratalog.server.endpoint.security.watched_context import WatchedContext
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import InvalidConfigError

KEEP_ALIVE_S = 30
GRACE_S = 3


def serve(
    application: Starlette,
    host: str,
    port: int,
    certificate: str | None,
    key: str | None,
    say: Callable[[str], None],
    proxies: Sequence[str] = (),
) -> None:
    """Serve until Ctrl-C or SIGTERM. `say` gets the address for the browser; port 0: a free one.

    proxies  addresses whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed

    OSError when the address cannot be listened at.
    """
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=None if certificate is None else str(Path(certificate).expanduser()),
        ssl_keyfile=None if key is None else str(Path(key).expanduser()),
        ssl_context_factory=None if certificate is None else renewing,
        lifespan="off",
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # so that the address answers as soon as it is said
        bound = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        say(f"The console is at {'https' if certificate else 'http'}://{shown}:{bound}/ until Ctrl-C.")
        uvicorn.Server(config).run(sockets=[listener])


def renewing(config: uvicorn.Config, new: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """A context whose new connections are shown the certificate that is in the files then."""

    def made() -> ssl.SSLContext:
        try:
            return new()
        except (OSError, ValueError) as reason:
            raise InvalidConfigError(f"{config.ssl_certfile}, {config.ssl_keyfile}: {reason}") from reason

    watched = WatchedContext(made, [str(config.ssl_certfile), str(config.ssl_keyfile or "")], SystemClock())

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = watched.current()

    context = new()
    context.sni_callback = choose
    return context
