"""Login, and the owners of past runs.

Everyone's browser gets a word of its own (a cookie that ends with the browser): by it the server
knows past runs again. With ``--basic-auth`` there is a login page before everything else; users
who are logged in are known here, by another such word, until the logout or a day has passed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from bokeh.server.auth_provider import AuthProvider
from tornado.httputil import HTTPServerRequest
from tornado.template import Template
from tornado.web import HTTPError, RequestHandler
from tornado.websocket import WebSocketHandler

from workbench.common.errors import SpecError
from workbench.interface.app.guesses import Guesses
from workbench.interface.app.page import tokens

LOGIN_SECONDS = 86_400.0  # that a login lasts
MOST_LOGINS = 10_000  # at a time: the oldest makes room
WORD_BYTES = 16  # of randomness, too many to guess
_WORD = re.compile(r"[\w-]{22}")
_LOGIN = Template((Path(__file__).parent / "login.html").read_text(encoding="utf-8"))


@dataclass
class Login:
    """A login: its user, its end, and the websockets that were opened with it."""

    user: str
    until: float
    lines: WeakSet[WebSocketHandler] = field(default_factory=WeakSet)


class Door(AuthProvider):
    """Bokeh's hook for login. ``keys``: password by user; None admits all."""

    def __init__(
        self,
        keys: Mapping[str, str] | None,
        port: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys = keys
        self.browser_cookie = f"workbench_{port}"  # cookies do not tell ports apart
        self.user_cookie = f"workbench_user_{port}"
        self.guesses = Guesses(clock)
        self._clock, self._secret = clock, secrets.token_bytes(32)
        self._logins: dict[str, Login] = {}
        super().__init__()

    # ---- browsers

    def visitor(self, handler: RequestHandler) -> str:
        """Return the name of a browser. One without a word is given one, in this very request too;
        a websocket comes from a page that has one.
        """
        if not isinstance(handler, WebSocketHandler) and not self.visitor_of(handler.request):
            word = secrets.token_urlsafe(WORD_BYTES)
            handler.set_cookie(
                self.browser_cookie, word, expires_days=None, httponly=True, samesite="Lax"
            )
            handler.request.cookies[self.browser_cookie] = word  # type: ignore[assignment]
        return self.visitor_of(handler.request)

    def visitor_of(self, request: HTTPServerRequest) -> str:
        """Return the name of the browser that asks: of its word, which is not to be had from it.
        Empty: it has none.
        """
        word = _cookie(request, self.browser_cookie)
        return self._mark(f"visitor {word}") if _WORD.fullmatch(word) else ""

    def form_word(self, visitor: str) -> str:
        """Return what a form of this browser carries, and no page of another server knows."""
        return self._mark(f"form {visitor}")

    def check_form(self, handler: RequestHandler) -> bool:
        """Return whether this form was made here, for this browser."""
        token = handler.get_body_argument("token", "")
        return _same(token, self.form_word(self.visitor_of(handler.request)))

    def _mark(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    # ---- logins

    def log_in(self, user: str) -> str:
        """Return the word by which this user is known from now on."""
        word = secrets.token_urlsafe(WORD_BYTES)
        while len(self._logins) >= MOST_LOGINS:
            self._end(next(iter(self._logins)))
        self._logins[word] = Login(user, self._clock() + LOGIN_SECONDS)
        return word

    def log_out(self, handler: RequestHandler) -> None:
        """End the login of a request: its word is worth nothing more, and its pages are cut off."""
        self._end(_cookie(handler.request, self.user_cookie))

    def _end(self, word: str) -> None:
        if (login := self._logins.pop(word, None)) is not None:
            for line in [*login.lines]:
                line.close(1008, "logged out")

    def _login(self, request: HTTPServerRequest) -> Login | None:
        word = _cookie(request, self.user_cookie)
        login = self._logins.get(word)
        if login is not None and login.until < self._clock():
            self._end(word)
            return None
        return login

    def user(self, handler: RequestHandler) -> str | None:
        """Return the user of the request; None: not admitted."""
        self.visitor(handler)
        if self.keys is None:
            return "anyone"
        login = self._login(handler.request)
        return login.user if login else None

    def connected(self, line: WebSocketHandler) -> None:
        """End the websocket together with the login that opened it."""
        if login := self._login(line.request):
            login.lines.add(line)

    # ---- what Bokeh asks

    @property
    def get_user(self) -> Callable[[Any], Any]:
        return self.user

    @property
    def login_url(self) -> str:
        return "/login"

    def login_address(self, then: str) -> str:
        """Return where a reader logs in, to come to ``then``."""
        return f"{self.login_url}?next={quote(then, safe='')}"

    @property
    def logout_url(self) -> str:
        return "/logout"

    @property
    def login_handler(self) -> type[RequestHandler]:
        return type("LoginPage", (_LoginPage,), {"door": self})

    @property
    def logout_handler(self) -> type[RequestHandler]:
        return type("Logout", (_Logout,), {"door": self})


class _LoginPage(RequestHandler):
    """The login page."""

    door: Door
    open_to_all = True

    def get(self) -> None:
        if self.door.keys is None:
            self.redirect("./")
        else:
            self._show()

    def post(self) -> None:
        door, address = self.door, self.request.remote_ip or ""
        user, password = self.get_body_argument("user", ""), self.get_body_argument("password", "")
        if (wait := door.guesses.wait(address)) > 0:
            self.set_status(429)
            self.set_header("Retry-After", str(math.ceil(wait)))
            self._show(user, f"Too many wrong passwords. Try again in {math.ceil(wait)} s.")
        elif not door.check_form(self):
            self.set_status(403)
            self._show(user, "This form was from before. Please log in again.")
        elif not self._is_right(user, password):
            door.guesses.wrong(address)
            self.set_status(403)
            self._show(user, "This user and password are not known here.")
        else:
            door.guesses.right(address)
            word = door.log_in(user)
            self.set_cookie(
                door.user_cookie, word, max_age=int(LOGIN_SECONDS), httponly=True, samesite="Lax"
            )
            self.redirect(within(self.get_query_argument("next", "/")))

    def _is_right(self, user: str, password: str) -> bool:
        keys = self.door.keys or {}
        right = keys.get(user, secrets.token_hex())  # as long for an unknown user
        return _same(password, right) and user in keys

    def _show(self, user: str = "", words: str = "") -> None:
        token = self.door.form_word(self.door.visitor(self))
        self.set_header("Cache-Control", "no-store")
        self.write(_LOGIN.generate(user=user, words=words, token=token, tokens=tokens()))


class _Logout(RequestHandler):
    """The end of a login. No address ends it: a picture in another page would."""

    door: Door
    open_to_all = True

    def post(self) -> None:
        if not self.door.check_form(self):
            raise HTTPError(403, reason="This form was from before; load the page again")
        self.door.log_out(self)
        self.clear_cookie(self.door.user_cookie)
        self.redirect("./login")


def _cookie(request: HTTPServerRequest, name: str) -> str:
    result = request.cookies.get(name)
    return result.value if result else ""


def _same(answer: str, right: str) -> bool:
    """Compare in a time that tells nothing, the lengths included."""
    return hmac.compare_digest(*(hashlib.sha256(one.encode()).digest() for one in (answer, right)))


def within(address: str) -> str:
    """Return the address if it stays on this server, else the start page."""
    inside = address.startswith("/") and address[1:2] not in ("/", "\\")
    return address if inside and address.isprintable() else "/"


def read_keys(text: str) -> dict[str, str]:
    """Return passwords by user, from USER:PASSWORD or a file: JSON, or one such line per user.

    Raises SpecError.
    """
    path = Path(text)
    try:
        content = path.read_text(encoding="utf-8") if path.is_file() else text
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"--basic-auth: {text} cannot be read: {error}") from None
    try:
        result = json.loads(content)
    except ValueError:
        lines = [line.strip() for line in content.splitlines() if line.strip()]
        result = (
            dict(line.split(":", 1) for line in lines) if all(":" in x for x in lines) else None
        )
    good = (
        isinstance(result, dict)
        and result
        and all(name and isinstance(word, str) and word for name, word in result.items())
    )
    if not good:
        raise SpecError(
            "--basic-auth takes USER:PASSWORD, or a file with such lines, or with JSON: "
            '{"user": "password"}'
        )
    return dict(result)
