"""Messages between driver, fork server and ranks: JSON, raw bytes for tensors, descriptors. Never
pickle.

| uint32 length of the JSON | uint64 length of the payload | JSON | payload |
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_FRAME = struct.Struct("<IQ")
MOST_JSON = 1 << 26
_AT_ONCE = 1 << 26  # bytes: memory is taken for what has come, not for what is announced
_PIECE = 1 << 18  # bytes that are taken from a socket at once


def send(
    sock: socket.socket,
    message: Mapping[str, Any],
    payload: bytes | memoryview = b"",
    fds: Sequence[int] = (),
) -> None:
    """Send one message; descriptors travel with its first byte."""
    head = frame(message, payload)
    sent = socket.send_fds(sock, [head], list(fds)) if fds else sock.send(head)
    if sent < len(head):  # else the peer may have read it, and be gone: not an error
        sock.sendall(head[sent:])
    if payload:
        sock.sendall(payload)


def frame(message: Mapping[str, Any], payload: bytes | memoryview = b"") -> bytes:
    """Return what is sent before the payload."""
    body = json.dumps(message).encode()
    return _FRAME.pack(len(body), len(payload)) + body


def receive(
    sock: socket.socket, most_fds: int = 8, most: int = 0
) -> tuple[dict[str, Any], bytearray, list[int]] | None:
    """Return the next message, its payload and descriptors; None at the end of the stream.

    ``most``: bytes that it may have; 0: any number. Raises ConnectionError for bytes that are not a
    message.
    """
    head = bytearray()
    fds: list[int] = []
    while len(head) < _FRAME.size:
        part, more, _, _ = socket.recv_fds(sock, _FRAME.size - len(head), most_fds)
        if not part:
            return None
        fds += more
        head += part
    json_bytes, payload_bytes = _FRAME.unpack(head)
    if most and json_bytes + payload_bytes > most:
        raise ConnectionError(f"a message announces more than {most:,} bytes")
    _check_json(json_bytes)
    body, payload = _exactly(sock, json_bytes), _exactly(sock, payload_bytes)
    if body is None or payload is None:
        return None
    return _parsed(body), payload, fds


class Frames:
    """Messages out of bytes, as these come."""

    def __init__(self) -> None:
        self._data = bytearray()

    def receive(self, sock: socket.socket) -> list[tuple[dict[str, Any], bytearray]] | None:
        """Take what has come through a socket, and do not wait: the sender may be stopped in
        the middle of a message. Return the messages that are whole; None at the end of the stream.
        """
        messages: list[tuple[dict[str, Any], bytearray]] = []
        while True:
            try:
                data = sock.recv(_PIECE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return messages
            if not data:
                return messages or None
            messages += self.take(data)

    def take(self, data: bytes) -> list[tuple[dict[str, Any], bytearray]]:
        """Add bytes; return the messages that are whole now, with their payloads. Raises
        ConnectionError for bytes that are not a message.
        """
        self._data += data
        result, at = [], 0
        while len(self._data) - at >= _FRAME.size:
            json_bytes, payload_bytes = _FRAME.unpack_from(self._data, at)
            _check_json(json_bytes)
            body = at + _FRAME.size
            payload, end = body + json_bytes, body + json_bytes + payload_bytes
            if len(self._data) < end:
                break
            message = _parsed(self._data[body:payload])
            if not at and len(self._data) == end:  # the usual one: a large payload is not copied
                whole, self._data = self._data, bytearray()
                del whole[:payload]
                return [(message, whole)]
            result.append((message, self._data[payload:end]))
            at = end
        del self._data[:at]
        return result


def _check_json(nbytes: int) -> None:
    if nbytes > MOST_JSON:
        raise ConnectionError(f"a message announces {nbytes:,} bytes of JSON: not one of ours")


def _parsed(body: bytearray) -> dict[str, Any]:
    try:
        message = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ConnectionError(f"a message is not JSON ({error}), so not one of ours") from None
    if not isinstance(message, dict):
        raise ConnectionError("a message is JSON without names: not one of ours")
    return message


def _exactly(sock: socket.socket, nbytes: int) -> bytearray | None:
    data = bytearray(min(nbytes, _AT_ONCE))
    got = 0
    while got < nbytes:
        if got == len(data):
            data.extend(bytes(min(nbytes - got, _AT_ONCE)))
        with memoryview(data) as view:
            count = sock.recv_into(view[got:])
        if count == 0:
            return None
        got += count
    return data


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> tuple[list[dict[str, Any]], bytes]:
    """Return a description of the arrays (name, dtype, shape) and their concatenated bytes."""
    described = [
        {"name": name, "dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()
    ]
    return described, b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())


def unpack_arrays(
    described: Sequence[Mapping[str, Any]], payload: bytearray
) -> dict[str, np.ndarray]:
    """Return the arrays that ``pack_arrays`` wrote; together they own their memory."""
    arrays, at = {}, 0
    for entry in described:
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        arrays[entry["name"]] = np.frombuffer(payload, dtype, count, at).reshape(shape)
        at += count * dtype.itemsize
    return arrays
