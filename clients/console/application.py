"""The console as a web application: addresses, logins, pages, JSON. I/O: answers requests.

Each page shows the answer to one question and has its parameters in its address. `/api/NAME` has the same answer as
JSON. A change is previewed by GET and made by POST with a token of the browser.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.catalogue import CHANGES, QUESTIONS
from stratalog.clients.console.changes.change import ClusterChange, Preview
from stratalog.clients.console.doors import WRONG_LOGIN, Door, EnteredUser
from stratalog.clients.console.guard import BROWSER_COOKIE, HEADERS, Guard
from stratalog.clients.console.over_time.pages import OVER_TIME_MENU, OVER_TIME_PAGES, OVER_TIME_SECTIONS
from stratalog.clients.console.pages import FOLDER, Pages
from stratalog.clients.console.question import REQUIRED, plain
from stratalog.clients.console.questions.groups import TopicLags
from stratalog.clients.console.questions.records import raw_part
from stratalog.clients.console.schemas.pages import SCHEMA_FORMS, SCHEMA_MENU, SCHEMA_PAGES, SCHEMA_SECTIONS
from stratalog.clients.console.sessions import FormTokens, LoginAttempts, Secrets, Sessions
from stratalog.clients.console.silence import silent_since_ms
from stratalog.clients.console.stored.pages import STORED_FORMS, STORED_MENU, STORED_PAGES, STORED_SECTIONS
from stratalog.clients.console.times import duration
from stratalog.clients.console.typed.pages import TYPED_MENU, TYPED_PAGES, TYPED_SECTIONS
from stratalog.clients.schemas.errors import (
    RegistryUnavailableError,
    SchemaNotFoundError,
    SchemaVersionNotFoundError,
    SubjectNotFoundError,
)
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StratalogError

FORM_BYTES_MAX = 2 << 20
KEPT_ANSWERS_MAX, KEPT_BYTES_MAX = 200, 32 << 20
STATIC_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
MENU = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/transactions", "Transactions"),
    ("/brokers", "Brokers"),
    ("/access", "Access"),
    *SCHEMA_MENU,
    *TYPED_MENU,
    *OVER_TIME_MENU,
    *STORED_MENU,
    ("/api", "Questions"),
)
SECTION_OF = {
    "/topic": "/topics",
    "/records": "/topics",
    "/record": "/topics",
    "/topic_groups": "/topics",
    "/group": "/groups",
    "/broker": "/brokers",
    "/reassignments": "/brokers",
    **SCHEMA_SECTIONS,
    **TYPED_SECTIONS,
    **OVER_TIME_SECTIONS,
    **STORED_SECTIONS,
}
PAGE_OF = {
    "/": ("overview", "overview.html"),
    "/brokers": ("overview", "brokers.html"),
    "/topics": ("topics", "topics.html"),
    "/topic": ("topic", "topic.html"),
    "/topic_groups": ("topic_groups", "topic_groups.html"),
    "/records": ("records", "records.html"),
    "/record": ("record", "record.html"),
    "/groups": ("groups", "groups.html"),
    "/group": ("group", "group.html"),
    "/transactions": ("transactions", "transactions.html"),
    "/broker": ("broker", "broker.html"),
    "/reassignments": ("reassignments", "reassignments.html"),
    **SCHEMA_PAGES,
    **TYPED_PAGES,
    **OVER_TIME_PAGES,
    **STORED_PAGES,
}
"""Path -> the question of a page and its template."""
LAGGING = 5
"""Number of groups that the overview shows."""
OF_PAGES_ALONE = ("every", "done", "mark")
"""Parameters of addresses that are no question's."""

AWAY = (
    errors.StoreError,
    errors.BrokerNotAvailableError,
    errors.LeaderNotAvailableError,
    errors.RequestTimedOutError,
    errors.CoordinatorNotAvailableError,
)
"""Errors that mean that the cluster does not answer now."""
STATUS_OF: tuple[tuple[tuple[type[StratalogError], ...], HTTPStatus, str, str], ...] = (
    (
        (
            errors.TopicAuthorizationFailedError,
            errors.GroupAuthorizationFailedError,
            errors.ClusterAuthorizationFailedError,
            errors.TransactionalIdAuthorizationFailedError,
        ),
        HTTPStatus.FORBIDDEN,
        "Not allowed",
        "Ask an administrator for an ACL that allows it, or log in as another user.",
    ),
    (
        (
            errors.UnknownTopicOrPartitionError,
            errors.GroupIdNotFoundError,
            errors.OffsetOutOfRangeError,
            SubjectNotFoundError,
            SchemaNotFoundError,
            SchemaVersionNotFoundError,
        ),
        HTTPStatus.NOT_FOUND,
        "Not found",
        "It may have been deleted, or its name may be written otherwise: look at the list.",
    ),
    (
        (RegistryUnavailableError,),
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The schema registry does not answer",
        "Load the page again in a moment.",
    ),
    (AWAY, HTTPStatus.SERVICE_UNAVAILABLE, "The cluster does not answer", "Load the page again in a moment."),
)


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How a console serves.

    cluster_name   what pages call the cluster
    allow_changes  whether changes can be made
    is_secure      whether browsers reach it by TLS, so that cookies are sent by that alone
    host_names     the names by which browsers call it; none: any
    has_storage    whether the cluster is known by its root, so that pages of its past can be read
    """

    cluster_name: str
    allow_changes: bool = False
    is_secure: bool = False
    host_names: frozenset[str] = frozenset()
    has_storage: bool = True


@dataclass(frozen=True, slots=True)
class _Kept:
    answer: object
    read_ms: int
    acls: object = None
    page_bytes: int = 0


@dataclass(slots=True)
class KeptAnswers:
    """The last answer to each question of each user, for when the cluster is away, as long as the ACLs stay the same
    object. Thread-safe."""

    _kept: dict[tuple[object, ...], _Kept] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, key: tuple[object, ...], answer: object, read_ms: int, acls: object, page_bytes: int) -> None:
        """Keep an answer; the oldest of too many, or of those whose pages are too long together, are dropped."""
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = _Kept(answer, read_ms, acls, page_bytes)
            whole_bytes = sum(each.page_bytes for each in self._kept.values())
            while len(self._kept) > KEPT_ANSWERS_MAX or whole_bytes > KEPT_BYTES_MAX:
                whole_bytes -= self._kept.pop(next(iter(self._kept))).page_bytes

    def get(self, key: tuple[object, ...], acls: object) -> _Kept | None:
        """The last answer under these ACLs."""
        with self._lock:
            found = self._kept.get(key)
        return found if found is not None and found.acls is acls else None


class Console:
    """Answers requests of browsers and programs. Its methods run in threads.

    door     lets users in
    clock    wall time for sessions and ages
    secrets  makes cookies
    """

    def __init__(self, door: Door, settings: ConsoleSettings, clock: Clock, secrets: Secrets) -> None:
        self.settings = settings
        self.sessions = Sessions()
        self._door = door
        self._clock = clock
        self._attempts = LoginAttempts()
        self._kept = KeptAnswers()
        self._tokens = FormTokens(secrets().encode())
        self._secrets = secrets
        self._pages = Pages()

    # -- who asks ----------------------------------------------------------------------------------------------

    def entry(self, request: Request) -> EnteredUser | None:
        """The user of a request; None: a login is needed."""
        cookie = request.cookies.get(BROWSER_COOKIE, "")
        found = self.sessions.find(cookie, self._clock.wall_ms()) if cookie else None
        if found is not None:
            return found
        return None if self._door.needs_login() else self._door.without_login(_host(request))

    def _asking(self, act: Callable[[Request, Asker], Response]) -> Callable[[Request], Response]:
        """A request that needs to know who asks; errors are pages, or JSON below `/api`."""

        def answer(request: Request) -> Response:
            is_json = request.url.path.startswith("/api/")
            try:
                entry = self.entry(request)
                if entry is None:
                    return self._to_login(request, is_json)
                return act(request, entry.asker(self._clock.wall_ms()))
            except errors.SaslAuthenticationFailedError:
                self.sessions.end(request.cookies.get(BROWSER_COOKIE, ""))
                return self._to_login(request, is_json)
            except StratalogError as reason:
                return self._problem(request, reason, is_json)

        return answer

    def _to_login(self, request: Request, is_json: bool) -> Response:
        if is_json:
            return JSONResponse({"error": "UNAUTHORIZED", "message": "log in first"}, HTTPStatus.UNAUTHORIZED)
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?{urlencode({'next': here})}", HTTPStatus.SEE_OTHER)

    def _problem(self, request: Request, reason: StratalogError, is_json: bool) -> Response:
        found = next((each for each in STATUS_OF if isinstance(reason, each[0])), None)
        status, title, advice = HTTPStatus.BAD_REQUEST, "That does not work", "Go back and change what was given."
        if found is not None:
            _, status, title, advice = found
        if is_json:
            return JSONResponse({"error": reason.name, "message": str(reason)}, status)
        values = {"title": title, "text": f"{reason.name}: {reason}", "advice": advice}
        return self._html(request, "problem.html", values, status=status)

    # -- pages -------------------------------------------------------------------------------------------------

    def _html(
        self,
        request: Request,
        template: str,
        values: Mapping[str, Any],
        *,
        status: HTTPStatus = HTTPStatus.OK,
        kept: _Kept | None = None,
        reason: StratalogError | None = None,
        json_path: str = "",
        cookie: str = "",
    ) -> Response:
        cookie = cookie or request.cookies.get(BROWSER_COOKIE, "") or self._secrets()
        entry = self.sessions.find(cookie, self._clock.wall_ms())
        path = request.url.path
        answer = values.get("answer")
        page = {
            "cluster": self.settings.cluster_name,
            "is_logged_in": entry is not None,
            "user": "" if entry is None else entry.principal.name.removeprefix("User:"),
            "shows_menu": template != "login.html",
            "menu": MENU if self.settings.has_storage else [each for each in MENU if each not in STORED_MENU],
            "section": SECTION_OF.get(path, path),
            "notice": self._notice(request, cookie),
            "old_ms": 0 if kept is None else kept.read_ms,
            "old_reason": "" if reason is None else f"{reason.name}: {reason}",
            "read_ms": getattr(answer, "read_ms", 0),
            "json": json_path,
            "changes": self.settings.allow_changes,
            "has_storage": self.settings.has_storage,
            "csrf": self._tokens.of(cookie),
        }
        response = HTMLResponse(self._pages.page(template, {**values, "page": page}), status)
        self._set_cookie(request, response, cookie)
        return response

    def _notice(self, request: Request, cookie: str) -> str:
        """What was done, as the redirect behind a change says it: an address that others made up says nothing."""
        done = request.query_params.get("done", "")
        is_own = bool(done) and self._tokens.is_right(_said(cookie, done), request.query_params.get("mark", ""))
        return done if is_own else ""

    def _set_cookie(self, request: Request, response: Response, cookie: str) -> None:
        is_secure = self.settings.is_secure or request.url.scheme == "https"
        response.set_cookie(BROWSER_COOKIE, cookie, path="/", secure=is_secure, httponly=True, samesite="strict")

    def page(self, request: Request, asker: Asker) -> Response:
        """The page of a question."""
        name, template = PAGE_OF[request.url.path]
        asked = _parameters(request)
        known = QUESTIONS[name].parameters
        given = {key: value for key, value in asked.items() if key in known}
        acls = None if asker.authorizer is None else asker.cluster.view.image.acls
        key = (name, asker.principal, id(asker.cluster), tuple(sorted(given.items())))
        shown = {**dict.fromkeys(known), **asked}
        if name == "topics" and asked.get("more"):
            given["sizes"] = "on"
        elif request.url.path == "/groups":
            given.setdefault("seconds", "on")
        elif request.url.path == "/":
            given.setdefault("groups", str(LAGGING))
        json_path = f"/api/{name}" + (f"?{urlencode(given)}" if given else "")
        try:
            answer = QUESTIONS[name].ask(asker, given)
        except StratalogError as reason:
            if request.url.path in STORED_FORMS | SCHEMA_FORMS:
                is_whole = all(given.get(key) for key, each in known.items() if each.default is REQUIRED)
                empty = {"answer": None, "asked": shown, "problem": f"{reason.name}: {reason}" if is_whole else ""}
                status = HTTPStatus.BAD_REQUEST if is_whole else HTTPStatus.OK
                return self._html(request, template, empty, status=status)
            if not isinstance(reason, AWAY):
                raise
            kept = self._kept.get(key, acls)
            if kept is None:
                raise
            values = {"answer": kept.answer, "asked": shown, "readers": {}}
            return self._html(request, template, values, kept=kept, reason=reason, json_path=json_path)
        values = {"answer": answer, "asked": shown, "readers": _readers(asker, request.url.path, asked)}
        since_ms = silent_since_ms(asker)
        old = _Kept(answer, since_ms) if since_ms else None
        silence = errors.BrokerNotAvailableError("no broker has given a sign of life since") if since_ms else None
        page = self._html(request, template, values, kept=old, reason=silence, json_path=json_path)
        self._kept.put(key, answer, asker.now_ms, acls, len(page.body))
        return page

    def access(self, request: Request, asker: Asker) -> Response:
        """ACLs, users and quotas: each may be hidden."""
        values: dict[str, Any] = {}
        for name in ("acls", "users", "quotas"):
            try:
                values[name] = {"answer": QUESTIONS[name].ask(asker, {}), "problem": ""}
            except StratalogError as reason:
                values[name] = {"answer": None, "problem": str(reason)}
        return self._html(request, "access.html", values, json_path="/api/acls")

    def questions(self, request: Request, _asker: Asker) -> Response:
        """What can be asked."""
        return self._html(request, "questions.html", {"questions": list(QUESTIONS.values())})

    def ask(self, request: Request, asker: Asker) -> Response:
        """A page for any question: a form for its parameters, and the answer as tables."""
        question = QUESTIONS.get(request.path_params["name"])
        if question is None:
            raise errors.InvalidRequestError(f"there is no question {request.path_params['name']}")
        asked = _parameters(request)
        values: dict[str, Any] = {"question": question, "asked": asked, "answer": None, "problem": ""}
        json_path = f"/api/{question.name}" + (f"?{urlencode(asked)}" if asked else "")
        is_complete = all(asked.get(name) for name, each in question.parameters.items() if each.default is REQUIRED)
        if not is_complete or (question.parameters and not request.url.query):
            return self._html(request, "ask.html", values)
        try:
            values["answer"] = plain(question.ask(asker, asked))
        except AWAY:
            raise
        except StratalogError as reason:
            values["problem"] = f"{reason.name}: {reason}"
        return self._html(request, "ask.html", values, json_path=json_path)

    def api(self, request: Request, asker: Asker) -> Response:
        """The answer to a question as JSON."""
        name = request.path_params["name"]
        if name not in QUESTIONS:
            return JSONResponse({"error": "UNKNOWN_QUESTION", "message": f"known: {', '.join(QUESTIONS)}"}, 404)
        answer = plain(QUESTIONS[name].ask(asker, _parameters(request)))
        return Response(json.dumps(answer), media_type="application/json")

    def download(self, request: Request, asker: Asker) -> Response:
        """All bytes of a record's key or value, as a file that no browser opens by itself."""
        given = request.query_params
        topic, part = given.get("topic", ""), given.get("part", "value")
        try:
            partition, offset = int(given.get("partition", "")), int(given.get("offset", ""))
        except ValueError as reason:
            raise errors.InvalidRequestError("partition and offset are numbers") from reason
        is_decoded = given.get("decoded", "") == "on"
        data = raw_part(asker, topic, partition, offset, part, decoded=is_decoded)
        name = quote(f"{topic}-{partition}-{offset}.{part}{'.json' if is_decoded else ''}")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(data, media_type="application/octet-stream", headers=headers)

    def static(self, request: Request) -> Response:
        """A file of the console itself."""
        name = request.path_params["name"]
        found = FOLDER / "static" / name
        if name not in {each.name for each in (FOLDER / "static").iterdir()} or found.suffix not in STATIC_TYPES:
            return Response("not found", 404, media_type="text/plain")
        headers = {"cache-control": "max-age=3600"}
        return Response(found.read_bytes(), media_type=STATIC_TYPES[found.suffix], headers=headers)

    # -- logins ------------------------------------------------------------------------------------------------

    def login_page(self, request: Request) -> Response:
        """The form of a login."""
        values = {"problem": "", "name": "", "next": _safe_next(request.query_params.get("next", ""))}
        return self._html(request, "login.html", values)

    def login(self, request: Request, form: Mapping[str, str]) -> Response:
        """A login, which gets a new cookie."""
        name, host, now_ms = form.get("name", ""), _host(request), self._clock.wall_ms()
        values = {"problem": "", "name": name[:256], "next": _safe_next(form.get("next", ""))}
        wait_ms = self._attempts.wait_ms(name, host, now_ms)
        if wait_ms:
            values["problem"] = f"Too many logins failed. Try again in {duration(max(1_000, wait_ms))}."
            response = self._html(request, "login.html", values, status=HTTPStatus.TOO_MANY_REQUESTS)
            response.headers["retry-after"] = str(-(-wait_ms // 1_000))
            return response
        self._attempts.failed(name, host, now_ms)  # attempts at once count, too
        try:
            entry = self._door.enter(name, form.get("password", ""), host)
        except errors.SaslAuthenticationFailedError:
            values["problem"] = WRONG_LOGIN
            return self._html(request, "login.html", values, status=HTTPStatus.UNAUTHORIZED)
        except StratalogError as reason:
            values["problem"] = f"The cluster does not answer: {reason}"
            return self._html(request, "login.html", values, status=HTTPStatus.SERVICE_UNAVAILABLE)
        self._attempts.succeeded(name, host)
        self.sessions.end(request.cookies.get(BROWSER_COOKIE, ""))
        secret = self._secrets()
        self.sessions.begin(secret, entry, now_ms)
        response = RedirectResponse(_safe_next(form.get("next", "")), HTTPStatus.SEE_OTHER)
        self._set_cookie(request, response, secret)
        return response

    def logout(self, request: Request, _form: Mapping[str, str]) -> Response:
        """The end of a session."""
        self.sessions.end(request.cookies.get(BROWSER_COOKIE, ""))
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        response.delete_cookie(BROWSER_COOKIE, path="/")
        return response

    def posted(self, act: Callable[[Request, Mapping[str, str]], Response]) -> Callable[[Request], Any]:
        """A request that changes something: its form is read, and its token checked."""

        async def answer(request: Request) -> Response:
            body = b""
            async for part in request.stream():
                body += part
                if len(body) > FORM_BYTES_MAX:
                    return Response("the form is too large", 413, media_type="text/plain")
            form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
            cookie = request.cookies.get(BROWSER_COOKIE, "")
            if not self._tokens.is_right(cookie, form.pop("csrf", "")):
                reason = errors.InvalidRequestError("this form is not from this console, or your login has ended")
                return await _in_thread(self._refused, request, reason)
            return await _in_thread(act, request, form)

        return answer

    def _refused(self, request: Request, reason: StratalogError) -> Response:
        values = {"title": "Refused", "text": str(reason), "advice": "Load the page with the form again."}
        return self._html(request, "problem.html", values, status=HTTPStatus.FORBIDDEN)

    # -- changes -----------------------------------------------------------------------------------------------

    def _change(self, request: Request) -> ClusterChange:
        found = CHANGES.get(request.path_params["name"])
        if found is None:
            raise errors.InvalidRequestError(f"there is no change {request.path_params['name']}")
        if not self.settings.allow_changes:
            raise errors.ClusterAuthorizationFailedError(
                "this console only shows. It changes the cluster when it is started with --allow-changes"
            )
        return found

    def change_page(self, request: Request, asker: Asker) -> Response:
        """The form of a change, with a preview when all is given."""
        change = self._change(request)
        given = {name: value for name, value in _parameters(request).items() if name not in change.secrets}
        return self._change_form(request, asker, change, given, is_asked=not change.secrets)

    def _change_form(
        self, request: Request, asker: Asker, change: ClusterChange, given: Mapping[str, str], *, is_asked: bool
    ) -> Response:
        preview: Preview | None = None
        problem = ""
        if is_asked and change.is_complete(given):
            try:
                preview = change.previewed(asker, given)
            except StratalogError as reason:
                problem = str(reason)
        values = {"change": change, "given": given, "preview": preview, "problem": problem}
        return self._html(request, "change.html", values)

    def make_change(self, request: Request, form: Mapping[str, str]) -> Response:
        """Make a change, or preview one whose form has a secret."""

        def act(request: Request, asker: Asker) -> Response:
            change = self._change(request)
            given = {name: value for name, value in form.items() if name != "step"}
            if form.get("step") == "preview":
                return self._change_form(request, asker, change, given, is_asked=True)
            try:
                done = change.performed(asker, given)
            except AWAY:
                raise
            except StratalogError as reason:
                shown = {name: value for name, value in given.items() if name not in change.secrets}
                values = {"change": change, "given": shown, "preview": None, "problem": f"{reason.name}: {reason}"}
                return self._html(request, "change.html", values, status=HTTPStatus.CONFLICT)
            page = change.page(change.values(given))
            mark = self._tokens.of(_said(request.cookies.get(BROWSER_COOKIE, ""), done))
            more = urlencode({"done": done, "mark": mark})
            return RedirectResponse(f"{page}{'&' if '?' in page else '?'}{more}", HTTPStatus.SEE_OTHER)

        return self._asking(act)(request)

    # -- all of it ---------------------------------------------------------------------------------------------

    def application(self) -> Starlette:
        """What a server runs."""
        routes = [Route(path, self._asking(self.page)) for path in PAGE_OF]
        routes += [
            Route("/access", self._asking(self.access)),
            Route("/api", self._asking(self.questions)),
            Route("/api/{name}", self._asking(self.api)),
            Route("/ask/{name}", self._asking(self.ask)),
            Route("/download", self._asking(self.download)),
            Route("/static/{name}", self.static),
            Route("/login", self.login_page, methods=["GET"]),
            Route("/login", self.posted(self.login), methods=["POST"]),
            Route("/logout", self.posted(self.logout), methods=["POST"]),
            Route("/change/{name}", self._asking(self.change_page), methods=["GET"]),
            Route("/change/{name}", self.posted(self.make_change), methods=["POST"]),
        ]
        guard = Middleware(Guard, host_names=self.settings.host_names, is_secure=self.settings.is_secure)
        handlers = {HTTPStatus.NOT_FOUND: self._no_page, HTTPStatus.INTERNAL_SERVER_ERROR: self._failed}
        return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)

    def _no_page(self, request: Request, _error: Exception) -> Response:
        values = {"title": "There is no such page", "text": request.url.path, "advice": "Choose one of the menu."}
        return self._html(request, "problem.html", values, status=HTTPStatus.NOT_FOUND)

    def _failed(self, request: Request, error: Exception) -> Response:
        """For an error of the console's own, which the server's log has; its text is not shown."""
        what = f"The console failed with {type(error).__name__}. Its log has more."
        values = {"title": "The console failed", "text": what, "advice": "Load the page again, and report it."}
        response = self._html(request, "problem.html", values, status=HTTPStatus.INTERNAL_SERVER_ERROR)
        response.headers.update(HEADERS)  # it is made outside of the guard
        return response


async def _in_thread(act: Callable[..., Response], *arguments: object) -> Response:
    from starlette.concurrency import run_in_threadpool

    return await run_in_threadpool(act, *arguments)


def _readers(asker: Asker, path: str, asked: Mapping[str, str]) -> dict[str, list[int]]:
    """The lags of groups beside a list of topics; none when they cannot be read, so that the rest is shown."""
    if path != "/topics" or not asked.get("more"):
        return {}
    try:
        return cast("TopicLags", QUESTIONS["topic_lags"].ask(asker, {})).lags
    except StratalogError:
        return {}


def _said(cookie: str, done: str) -> str:
    return f"{cookie} {done}"


def _host(request: Request) -> str:
    return request.client.host if request.client is not None else "127.0.0.1"


def _parameters(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.query_params.items() if name not in OF_PAGES_ALONE}


def _safe_next(path: str) -> str:
    """Where to go after a login: a path of this console only.

    >>> _safe_next("/topics?first=1"), _safe_next("//evil.example"), _safe_next("https://evil.example")
    ('/topics?first=1', '/', '/')
    """
    is_here = path.startswith("/") and not path.startswith(("//", "/\\")) and all(" " <= each < "\x7f" for each in path)
    return path if is_here else "/"
