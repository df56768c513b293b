"""HTTP redirects that may be followed. I/O: `urllib` asks the next address.

A registry or an issuer of tokens may redirect. A login is for the server that it was given to, and what was asked for
by https is not taken from http.
"""

from __future__ import annotations

from http.client import HTTPMessage
from typing import IO
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request

_PORTS = {"http": 80, "https": 443}


class SafeRedirects(HTTPRedirectHandler):
    """Follows no redirect from https to another scheme, and none to another origin with an Authorization header:
    HTTPError, with the two addresses and what to do."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        why = ""
        if before.scheme == "https" and after.scheme != "https":
            why = "it leaves https"
        elif req.has_header("Authorization") and _origin(before) != _origin(after):
            why = "it is another server, and the login is not for it"
        if why:
            told = f"the redirect of {_text(before)} to {_text(after)} is not followed: {why}; configure that address"
            raise HTTPError(req.full_url, code, told, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or _PORTS.get(url.scheme)


def _text(url: SplitResult) -> str:
    """The address without a login or a query, which may be secret."""
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
