"""The front door: the one middleware that every request passes, before its route and after its response."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import InternalError, Overloaded, Postponed, PullbackError, Unauthorized
from app.execution.lifecycle import Lifecycle
from app.http.access_log import CLIENT_GONE, AccessLog
from app.http.body import Budget, ClientGone
from app.http.deadlines import Deadline, Deadlines, seconds_of
from app.http.key_file import needs_key, scope_of
from app.http.keys import Keys
from app.http.origins import Origins
from app.http.problems import FAULT
from app.http.request import REQUEST, Defer, Request
from app.http.route import RawRoute, label
from app.settings import MB, Settings
from app.telemetry.accounts import Account
from app.telemetry.counters import Counters
from app.telemetry.stage_times import CURRENT

logger = logging.getLogger("pullback")


class FrontDoor:
    """The middleware that makes the ``Request``, passes it on, answers every exception, and logs the request.

    A ``PullbackError`` goes to the client in the dialect of the route. ``ClientGone`` is logged as 499. Any other
    exception is described only in the log, and the client gets a 500.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        *,
        log: AccessLog,
        lifecycle: Lifecycle,
        counters: Counters,
        budget: Budget,
        origins: Origins,
        keys: Keys | None = None,
        defer: Defer | None = None,
        routes: Sequence[RawRoute] = (),
    ) -> None:
        """Count requests in ``lifecycle``; ``counters`` are those of requests without a route.

        The limits are those of the settings, which are at most those of ``budget``. Without ``keys``, none is needed.
        ``defer`` makes jobs of the requests that ask for that; without it they are answered at once.
        ``routes`` are called at once: FastAPI's own layers, which they do not need, would cost a third of a request.
        """
        self._app, self._log, self._lifecycle, self._counters = app, log, lifecycle, counters
        self._budget, self._origins, self._keys, self._routes = budget, origins, keys, tuple(routes)
        self._defer = defer
        self._deadlines, self._deadline_s = Deadlines(), settings.deadline_s
        self._json_limit = min(settings.max_json_mb * MB, budget.limit)
        self._binary_limit = min(settings.max_body_mb * MB, budget.limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send, self._log.next_id(), lifecycle=self._lifecycle, counters=self._counters)
        scope[REQUEST] = request
        if self._log.tracing is not None:
            request.times = self._log.tracing.begin(request)
            CURRENT.set(request.times)
        if self._keys is not None:
            request.account = self._keys.keyless
        try:
            await self.admit(request)
        except ClientGone:
            request.status = CLIENT_GONE
            if request.link.abort():
                await asyncio.sleep(0)  # the server notices now
        except PullbackError as error:
            if error.refusal:
                request.account.usage.refused[error.refusal] += 1
            await self._fail(request, error)
        except asyncio.CancelledError:
            # The server cancels unfinished requests at the end of its grace time, and closes their connections itself.
            request.is_unread = False
            self._lifecycle.cut_off += request.is_counted
            request.leave()
            await self._fail(
                request, Overloaded("the service is shutting down and cannot finish this request: try again")
            )
        except (Exception, Postponed):
            logger.exception("request %s failed", request.id.decode())
            await self._fail(request, InternalError(FAULT))
        finally:
            # The request refers to the scope: only the garbage collector could free this reference cycle.
            del scope[REQUEST]
            self._lifecycle.in_flight -= request.is_counted
            self._lifecycle.finished += request.is_counted
            self._log.answered((request,), request.counters)

    async def admit(self, request: Request) -> None:
        """Pass on a request that names an allowed host and origin, with a key if one is needed, within its limits.

        The deadline counts from the first byte, but not before earlier requests of the connection are answered. Routes
        reserve memory for a body of declared size before it is read (``Request.reserve``); that for a chunked body is
        taken as it arrives. It is released when the request ends.
        Raises the ``PullbackError`` for what is not allowed, and for a limit that the request exceeds.
        """
        request.budget, request.binary_limit, request.defer = self._budget, self._binary_limit, self._defer
        request.limit = request.json_limit = self._json_limit
        account: Account | None = None
        host, origin = request.headers.get(b"host", b""), request.headers.get(b"origin")
        request.deadline = deadline = Deadline(
            self._deadlines, self._deadline_s, request.wait_for_disconnect, request.too_slow, request.turn
        )
        try:
            # Most requests name the same host as the one before, and no header twice.
            is_usual = host == self._origins.last_host and len(request.headers) == len(request.scope["headers"])
            if not is_usual or origin is not None:
                self._origins.check(request, host, origin)
            if self._keys is not None and needs_key(request.path):
                try:
                    grant = self._keys.grant_of(request.headers.get(b"authorization", b""))
                except Unauthorized as error:
                    if request.headers.get(b"sec-fetch-dest") == b"empty":
                        error.answer_script()
                    raise
                request.key, request.grant = grant.name, grant
                request.account = self._keys.account_of(grant.name)
                request.quota = partial(self._keys.headers, grant, request.account)
                account = self._keys.enter(grant, scope_of(request.method, request.path))
            if (milliseconds := request.headers.get(b"pullback-deadline-ms")) is not None:
                deadline.shorten(seconds_of(milliseconds))
            await self._route(request)
        except asyncio.CancelledError:
            deadline.explain()
            raise
        finally:
            deadline.stop()
            self._budget.free += request.held
            if account is not None and request.grant is not None and self._keys is not None:
                self._keys.leave(request.grant, account)
            # The deadline refers to the request: only the garbage collector could free this reference cycle.
            del request.deadline

    async def _route(self, request: Request) -> None:
        scope = request.scope
        for route in self._routes if not scope.get("root_path") else ():
            if (parameters := route.parameters(scope)) is not None:
                scope["path_params"], scope["route"] = parameters, route
                await route.handle(scope, request.receive, request.send)
                return
        await self._app(scope, request.receive, request.send)

    async def _fail(self, request: Request, error: PullbackError) -> None:
        # The server cuts off a response that has begun.
        if request.link.is_lost:
            request.status = CLIENT_GONE
        elif not request.status:
            # The door may refuse a request before it has a route.
            label(request)
            await request.fail(error)
