"""What holds for every request: who may be called by which name, from where forms come, what pages may load.

I/O: passes requests on.
"""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BROWSER_COOKIE = "strata"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The content security policy: nothing inline, nothing of others."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
YEAR_S = 365 * 86_400


class Guard:
    """ASGI middleware.

    A page of another site that has its own name lead to this address is refused, since the name is not one of
    `host_names`; so is a form of another site.
    """

    def __init__(self, app: ASGIApp, host_names: Collection[str], is_secure: bool) -> None:
        self._app = app
        self._host_names = frozenset(each.lower() for each in host_names)
        self._is_secure = is_secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(Headers(scope=scope), scope["method"])

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                if self._is_secure:
                    headers["strict-transport-security"] = f"max-age={YEAR_S}"
            await send(message)

        if refusal:
            await PlainTextResponse(refusal, HTTPStatus.FORBIDDEN)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _refusal(self, headers: Headers, method: str) -> str:
        host = headers.get("host", "")
        if self._host_names and _name_of(host) not in self._host_names:
            return f"This console is not called {_name_of(host)!r}. Start it with --host-name to allow that name."
        if method in ("GET", "HEAD"):
            return ""
        origin = headers.get("origin")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "This form is of another site."
        if origin not in (None, "null") and origin.partition("://")[2] != host:
            return "This form is of another site."
        return ""


def _name_of(host: str) -> str:
    """The name in a Host header, without its port.

    >>> _name_of("localhost:8080"), _name_of("[::1]:8080")
    ('localhost', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
