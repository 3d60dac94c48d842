"""Who may come in, and whose past runs these are.

Everyone's browser gets a word of its own (a cookie that ends with the browser): by it the server
knows past runs again. With ``--basic-auth`` there is a login page before everything else.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bokeh.server.auth_provider import AuthProvider
from tornado.template import Template
from tornado.web import RequestHandler
from tornado.websocket import WebSocketHandler

from workbench.app.page import tokens
from workbench.errors import SpecError

WRONG_SECONDS = 1.0  # that a wrong password costs
_LOGIN = Template((Path(__file__).parent / "login.html").read_text(encoding="utf-8"))


class Door(AuthProvider):
    """Bokeh's hook for who is there. ``keys``: password by user; None lets everybody in."""

    def __init__(self, keys: Mapping[str, str] | None, port: int) -> None:
        self.keys = keys
        self.browser_cookie = f"workbench_{port}"  # cookies do not tell ports apart
        self.user_cookie = f"workbench_user_{port}"
        super().__init__()

    @property
    def get_user(self) -> Callable[[Any], Any]:
        return self._user

    def _user(self, handler: RequestHandler) -> str | None:
        self._know_browser(handler)
        if self.keys is None:
            return "anyone"
        signed = handler.get_signed_cookie(self.user_cookie, max_age_days=1)
        user = signed.decode() if signed else None
        return user if user in self.keys else None

    def _know_browser(self, handler: RequestHandler) -> None:
        """Give a browser its word, in this very request too."""
        if isinstance(handler, WebSocketHandler) or handler.get_cookie(self.browser_cookie):
            return
        word = secrets.token_urlsafe(16)
        handler.set_cookie(
            self.browser_cookie, word, expires_days=None, httponly=True, samesite="Lax"
        )
        handler.request.cookies[self.browser_cookie] = word  # type: ignore[assignment]

    @property
    def login_url(self) -> str:
        return "/login"

    @property
    def logout_url(self) -> str:
        return "/logout"

    @property
    def login_handler(self) -> type[RequestHandler]:
        door = self

        class Login(_Login):
            pass

        Login.door = door
        return Login

    @property
    def logout_handler(self) -> type[RequestHandler]:
        door = self

        class Logout(RequestHandler):
            def get(self) -> None:
                self.clear_cookie(door.user_cookie)
                self.redirect("./login")

        return Logout


class _Login(RequestHandler):
    """The login page."""

    door: Door

    def get(self) -> None:
        if self.door.keys is None:
            self.redirect("./")
        else:
            self._show()

    async def post(self) -> None:
        keys = self.door.keys or {}
        user, password = self.get_body_argument("user", ""), self.get_body_argument("password", "")
        right = keys.get(user, secrets.token_hex())  # as long for an unknown user
        if not hmac.compare_digest(password.encode(), right.encode()):
            await asyncio.sleep(WRONG_SECONDS)
            self.set_status(403)
            self._show(user, "This user and password are not known here.")
            return
        self.set_signed_cookie(
            self.door.user_cookie, user, expires_days=1, httponly=True, samesite="Lax"
        )
        self.redirect(within(self.get_query_argument("next", "/")))

    def _show(self, user: str = "", words: str = "") -> None:
        self.set_header("Cache-Control", "no-store")
        self.write(_LOGIN.generate(user=user, words=words, tokens=tokens()))


def within(address: str) -> str:
    """The address if it stays on this server, else the start page."""
    inside = address.startswith("/") and address[1:2] not in ("/", "\\")
    return address if inside and address.isprintable() else "/"


def read_keys(text: str) -> dict[str, str]:
    """Password by user, from USER:PASSWORD or from a file: JSON, or a line of that form for each.

    Raises SpecError.
    """
    path = Path(text)
    try:
        content = path.read_text(encoding="utf-8") if path.is_file() else text
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"--basic-auth: {text} cannot be read: {error}") from None
    try:
        found = json.loads(content)
    except ValueError:
        lines = [line.strip() for line in content.splitlines() if line.strip()]
        found = dict(line.split(":", 1) for line in lines) if all(":" in x for x in lines) else None
    good = isinstance(found, dict) and found and all(
        name and isinstance(word, str) and word for name, word in found.items()
    )  # fmt: skip
    if not good:
        raise SpecError(
            "--basic-auth takes USER:PASSWORD, or a file with such lines, or with JSON: "
            '{"user": "password"}'
        )
    return dict(found)
