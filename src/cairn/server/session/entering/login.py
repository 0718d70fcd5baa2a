"""Logging in: SCRAM-SHA-256 only, the same face for every failure, lock-out after repeated ones."""

from __future__ import annotations

import asyncio
import logging
import os

from cairn.model.errors import (
    AuthenticationFailed,
    InvalidAuthorization,
    InvalidParameter,
    NotOnlineYet,
    ProtocolViolation,
)
from cairn.model.settings.auth_rules import admits
from cairn.model.tables.catalog import ADMIN_ID
from cairn.pgwire.scram import (
    MECHANISM,
    MECHANISM_PLUS,
    NONCE_BYTES,
    ScramServer,
    check_password,
    fake_verifier,
    parse_verifier,
)
from cairn.pgwire.server.startup import StartupParams
from cairn.server.audit import Who
from cairn.server.face import PgFace

log = logging.getLogger("cairn.login")


def read_flag(options: dict[str, str], name: str) -> bool:
    """A boolean start-up option; anything but true and false is refused by name."""
    value = options.get(name)
    if value is None or value.lower() == "false":
        return False
    if value.lower() in ("true", "1", "on"):
        return True
    raise InvalidParameter(f"error parsing value for option {name}: '{value}' is not true or false")


class Login:
    """One attempt. Who the user is was fixed by the startup packet."""

    def __init__(
        self,
        face: PgFace,
        params: StartupParams,
        channel_binding: bytes | None = None,
        address: str = "",
        *,
        is_encrypted: bool = False,
    ) -> None:
        self._face, self.params = face, params
        self._binding = channel_binding
        self.user = params.user
        if not face.catalog.users:
            raise NotOnlineYet("this instance has not joined the cluster yet; try again")
        user = face.catalog.users.get(params.user)
        is_admin = user is not None and user.id == ADMIN_ID
        if not admits(
            face.rules(), self.user, address, is_encrypted=is_encrypted, is_admin=is_admin
        ):
            self._note_refusal(address, "rule")
            how = "encrypted" if is_encrypted else "in clear"
            raise InvalidAuthorization(f"no rule admits user '{self.user}' from {address}, {how}")
        self._address = address
        verifier = None
        if user is not None and user.auth is not None and user.auth[0] == "scram-sha256":
            verifier = parse_verifier(user.auth[1])
        self._known = verifier is not None
        self.user_id = -1 if user is None else user.id
        self._verifier = verifier or fake_verifier(params.user, secret=face.secret)
        self._scram = ScramServer(self._verifier, os.urandom(NONCE_BYTES))

    def mechanisms(self) -> list[str]:
        """With channel binding first, where the connection is encrypted."""
        return [MECHANISM] if self._binding is None else [MECHANISM_PLUS, MECHANISM]

    def first(self, mechanism: str, data: bytes) -> bytes:
        if mechanism not in self.mechanisms():
            raise ProtocolViolation("client selected an invalid SASL authentication mechanism")
        if mechanism == MECHANISM_PLUS:
            nonce = os.urandom(NONCE_BYTES)
            self._scram = ScramServer(self._verifier, nonce, channel_binding=self._binding)
        elif self._binding is not None and data.startswith(b"y"):
            # The client would bind but believes that we cannot: somebody hid our offer.
            raise ProtocolViolation("the offer of channel binding did not reach the client")
        return self._scram.first(data)

    def final(self, data: bytes) -> bytes:
        answer = self._scram.final(data)
        self._admit(is_right=answer is not None)
        assert answer is not None
        return answer

    async def by_password(self, password: str) -> None:
        """For doors without SCRAM: the password itself has come, over a channel that keeps it."""
        is_right = await asyncio.to_thread(check_password, self._verifier, password)
        self._admit(is_right=is_right)

    def _admit(self, *, is_right: bool) -> None:
        """The one place where a login succeeds or fails.

        Lock-outs are looked at here and not when it began: of a thousand logins that were begun
        together, only so many are guesses.
        """
        lockouts = self._face.lockouts
        limit = int(self._face.catalog.setting("auth_login_attempt_max") or 4)
        locked_s = lockouts.locked_s(self.user, self._address, limit)
        if not (is_right and self._known and not locked_s and self._may_log_in()):
            # Names that nobody has would only fill the memory. Who is locked out is told nothing
            # about its guess, and does not prolong the wait of others at its address.
            if self._known and not locked_s:
                lockouts.failed(self.user, self._address)
            if not self._known:
                reason = "no such user"
            elif locked_s:
                reason = "locked out"
            else:
                reason = "may not log in" if is_right else "wrong password"
            self._note_refusal(self._address, reason)
            why = f" (locked out for {locked_s:.0f} s more)" if locked_s else ""
            # Names that a stranger invents are endless: all of an address are told as one.
            named = self.user if self._known else ""
            same = f"login {named} {self._address} {locked_s > 0}"
            if (untold := self._face.saying.untold(same)) is not None:
                why += f" ({untold} more before it)" if untold else ""
                log.warning("login of %.100r from %s failed%s", self.user, self._address, why)
            raise AuthenticationFailed(self.user)
        lockouts.forget(self.user, self._address)

    def _note_refusal(self, address: str, why: str) -> None:
        """Told apart by users that exist: names that a stranger invents are endless."""
        is_user = self.user in self._face.catalog.users
        key = f"{address} {self.user}" if is_user else address
        self._face.audit.refused("login_refused", Who(self.user, address), key, why=why)

    def _may_log_in(self) -> bool:
        return self._face.catalog.may_log_in(self.user_id)
