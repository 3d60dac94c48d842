"""The connection of an agent on another host to its driver: encrypted, each sure of the other.

    driver ── socket pair ── TLS 1.3 over TCP ── socket pair ── agent

The driver makes a certificate for one run. Whatever starts the agents (ssh, sbatch, ...) brings
them its fingerprint, by which they know the driver, and the run's key, by which the driver knows
them. Either end is a plain socket for its user; a thread encrypts what goes through it. An SSL
object serves one thread only, and an end of this channel is read and written by two.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import select
import socket
import ssl
import threading
import time
import weakref
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from workbench.common import threads
from workbench.common.errors import WorkbenchError

_AT_ONCE = 1 << 16  # bytes
_MOST_WAITING = 1 << 20  # bytes that one side has not taken yet, until the other is not read
_LOOK = 1.0  # seconds between two looks whether the process ends


def leaves_this_machine(host: str) -> bool:
    """Return whether what is sent to this address may leave the machine."""
    return not (host.startswith("127.") or host in ("localhost", "::1"))


@dataclass(frozen=True)
class Identity:
    """The certificate that a driver is known by during one run."""

    context: ssl.SSLContext
    fingerprint: str

    @classmethod
    def make(cls) -> Identity:
        """Make a key pair and a certificate of it, which are kept in memory alone."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "workbench driver")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(name, name, key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        # Clocks of hosts differ; agents go by the fingerprint, not by dates.
        builder = builder.not_valid_before(now - timedelta(days=1))
        builder = builder.not_valid_after(now + timedelta(days=365))
        certificate = builder.sign(key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with open(os.memfd_create("certificate", os.MFD_CLOEXEC), "wb", buffering=0) as file:
            file.write(private + certificate.public_bytes(pem))
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        der = certificate.public_bytes(serialization.Encoding.DER)
        return cls(context, sha256(der).hexdigest())


class Channel:
    """One end. ``socket``: what is written into it and read from it is plain. ``wire``: what
    carries it, where it is encrypted.
    """

    def __init__(
        self,
        plain: socket.socket,
        wire: socket.socket | None = None,
        thread: threading.Thread | None = None,
    ) -> None:
        self.socket, self._wire, self._thread = plain, wire, thread
        # Not closed before: its number might be another's, while a thread still writes to it.
        weakref.finalize(self, plain.close)

    @property
    def encrypted(self) -> bool:
        """Return whether it is encrypted: then it may lead to another host."""
        return self._wire is not None

    def finish(self, seconds: float) -> None:
        """Close it, and wait until all that was written has left."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR if self._thread is None else socket.SHUT_WR)
        if self._thread is not None:
            self._thread.join(seconds)
        self.cut()

    def cut(self) -> None:
        """Hang up at once, whatever waits to leave; threads that read or write find its end."""
        for one in (self._wire, self.socket):
            with contextlib.suppress(OSError):
                if one is not None:
                    one.shutdown(socket.SHUT_RDWR)


def accept(raw: socket.socket, identity: Identity, seconds: float) -> Channel:
    """Return the driver's end of a connection. Raises OSError if the caller speaks no TLS, or is
    not done in time.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = identity.context.wrap_bio(incoming, outgoing, server_side=True)
    _shake_hands(raw, tls, incoming, outgoing, seconds)
    return _piped(raw, tls, incoming, outgoing)


def connect(raw: socket.socket, fingerprint: str, seconds: float) -> Channel:
    """Return an agent's end. Raises WorkbenchError if another one answers than the driver."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # see the fingerprint
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    _shake_hands(raw, tls, incoming, outgoing, seconds)
    digest = sha256(tls.getpeercert(binary_form=True) or b"").hexdigest()
    if not hmac.compare_digest(digest, fingerprint):
        raise WorkbenchError(
            "another process answers at the driver's address than the one that started this "
            "agent: its certificate is a different one. Nothing was sent to it"
        )
    return _piped(raw, tls, incoming, outgoing)


def _shake_hands(
    raw: socket.socket,
    tls: ssl.SSLObject,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
    seconds: float,
) -> None:
    deadline, done = time.monotonic() + seconds, False
    while not done:
        try:
            tls.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # which is told to the other side, too, if that is there
            with contextlib.suppress(OSError):
                raw.sendall(outgoing.read())
            raise
        raw.settimeout(max(deadline - time.monotonic(), 0.01))
        raw.sendall(outgoing.read())
        if not done:
            if not (data := raw.recv(_AT_ONCE)):
                raise ConnectionError("the other side has hung up")
            incoming.write(data)


def _piped(
    raw: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
) -> Channel:
    plain, mine = socket.socketpair()
    pipe = _Pipe(raw, mine, tls, incoming, outgoing)
    return Channel(plain, raw, threads.start(pipe.run, "workbench TLS", pipe.stop))


class _Pipe:
    """Encrypts what ``plain`` sends, and decrypts what ``raw`` sends, until one of them closes."""

    def __init__(
        self,
        raw: socket.socket,
        plain: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None:
        self._raw, self._plain, self._tls = raw, plain, tls
        self._incoming, self._outgoing = incoming, outgoing
        self._to_raw, self._to_plain = bytearray(), bytearray()
        self._plain_open = self._raw_open = True
        self._stopped = False

    def stop(self) -> None:
        """Have it end as soon as all that was written has left."""
        self._stopped = True

    def run(self) -> None:
        """Pass on bytes both ways."""
        for one in (self._raw, self._plain):
            one.setblocking(False)
        try:
            self._decrypt()  # what came with the end of the handshake
            while self._step():
                pass
        except OSError:
            pass  # the other side is gone; the reader learns it by the end of the stream
        finally:
            self._raw.close()
            self._plain.close()

    def _step(self) -> bool:
        """Wait for one of both, and serve it; False: there is no more to do."""
        if not self._plain_open and not self._to_raw:
            return False
        if not self._raw_open and not self._to_plain:
            return False
        poll = select.poll()
        poll.register(self._raw, self._mask(self._raw_open, self._to_plain, self._to_raw))
        poll.register(self._plain, self._mask(self._plain_open, self._to_raw, self._to_plain))
        ready = dict(poll.poll(_LOOK * 1000))
        if not ready and self._stopped:
            self._plain_open = False
        raw, plain = (ready.get(one.fileno(), 0) for one in (self._raw, self._plain))
        if raw & ~select.POLLOUT:
            self._read_raw()
        if plain & ~select.POLLOUT:
            self._read_plain()
        if raw & select.POLLOUT:
            del self._to_raw[: self._raw.send(self._to_raw)]
        if plain & select.POLLOUT:
            del self._to_plain[: self._plain.send(self._to_plain)]
        return True

    @staticmethod
    def _mask(is_open: bool, its_way: bytearray, for_it: bytearray) -> int:
        """Return the events to poll for: input while it has room, output while some waits."""
        read = select.POLLIN if is_open and len(its_way) < _MOST_WAITING else 0
        return read | (select.POLLOUT if for_it else 0)

    def _read_raw(self) -> None:
        data = self._raw.recv(_AT_ONCE)
        if data:
            self._incoming.write(data)
            self._decrypt()
        else:
            self._raw_open = False

    def _decrypt(self) -> None:
        try:
            while data := self._tls.read(_AT_ONCE):
                self._to_plain += data
            self._raw_open = False  # the other side has said that it is done
        except ssl.SSLWantReadError:
            pass
        self._to_raw += self._outgoing.read()

    def _read_plain(self) -> None:
        if data := self._plain.recv(_AT_ONCE):
            self._tls.write(data)
        else:
            self._plain_open = False
        self._to_raw += self._outgoing.read()
