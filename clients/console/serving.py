"""The server of the console's web application. I/O: a listener."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

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
