"""The wire format of protocol buffers, as far as Chakra's messages need it: fields by number.

    field = (number << 3 | type), then by type: 0 a varint, 1 eight bytes, 2 a length and so many
    bytes, 5 four bytes

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
Fields = Mapping[int, list[Any]]
_MOST = (1 << 64) - 1


def varint(number: int) -> bytes:
    """Encode a number; a negative one as its two's complement in 64 bits."""
    number &= _MOST
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def message(*fields: tuple[int, int | str | bytes | bool]) -> bytes:
    """Encode fields (number, value): numbers and truths as varints, the rest with their length."""
    parts: list[bytes] = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [varint(number << 3 | VARINT), varint(value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [varint(number << 3 | BYTES), varint(len(data)), data]
    return b"".join(parts)


def delimited(data: bytes) -> bytes:
    """Return a message with its length in front, as a file of several has them."""
    return varint(len(data)) + data


def messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of such a file. Raises ValueError where it is cut off."""
    at = 0
    while at < len(data):
        length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError(f"a message of {length:,} bytes is cut off at byte {at:,}")
        yield data[at : at + length]
        at += length


def fields(data: bytes) -> Fields:
    """Decode a message: field number -> its values, numbers unsigned, the rest as bytes.

    Raises ValueError for what is not a message.
    """
    result: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value: Any
            value, at = _varint(data, at)
        elif kind in (EIGHT, FOUR):
            size = 8 if kind == EIGHT else 4
            value, at = data[at : at + size], at + size
        elif kind == BYTES:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {kind} of field {number}")
        if at > len(data):
            raise ValueError(f"field {number} is cut off")
        if not number:
            raise ValueError("a field without a number")
        result.setdefault(number, []).append(value)
    return result


def signed(number: int) -> int:
    """Return a varint as a signed number."""
    return number - (1 << 64) if number >> 63 else number


def double(data: bytes) -> float:
    return float(struct.unpack("<d", data)[0])


def packed(values: list[Any]) -> list[int]:
    """Return the numbers of a repeated field: packed in one value, or one a value."""
    result: list[int] = []
    for value in values:
        if isinstance(value, int):
            result.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            result.append(number)
    return result


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError(f"a number is cut off at byte {at:,}")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MOST, at
        shift += 7
