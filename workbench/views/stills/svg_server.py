"""Servers and workers of a still picture, drawn: the left half of svg.py where a run has them."""

from __future__ import annotations

import math

from workbench.common.svg import INK, Place, line, text
from workbench.views.stills.server import Message, Served

TOP, BOTTOM = 92.0, 292.0
WORKERS, SERVERS, BOX = 190.0, 330.0, 120.0  # x of the discs, of the boxes, a box's width
MOST = 12  # ranks of a kind that are drawn one by one


def marks(still: Served) -> list[str]:
    """Draw SVG elements. A server's box is as high as its share of the parameters."""
    workers, servers = still.workers[:MOST], still.servers[:MOST]
    step = (BOTTOM - TOP) / max(len(workers), 1)
    node = max(5.0, min(15.0, step / 2 - 3))
    place = {w: (WORKERS, TOP + step * (k + 0.5)) for k, (w, _, _) in enumerate(workers)}
    boxes = _boxes(servers)
    door = {server: (SERVERS, (low + high) / 2) for server, (low, high) in boxes.items()}
    result = [line(a, b, "rule", 1.5) for a in place.values() for b in door.values()]
    for server, share, version in servers:
        low, high = boxes[server]
        result.append(
            f'<rect x="{SERVERS}" y="{low:.1f}" width="{BOX}" height="{high - low:.1f}" rx="3" '
            f'fill="{INK["panel"]}" stroke="{INK["edge"]}"/>'
        )
        part, small = f"{share * 100:.0f} %", high - low < 34
        at = (low + high) / 2 + (4 if small else -3)
        result.append(text(SERVERS + 10, at, f"server {server}", "ink", weight=700))
        if small:
            result.append(text(SERVERS + BOX - 10, at, part, "ink-3", size=11, anchor="end"))
        else:
            words = f"{part}, version {version}"
            result.append(text(SERVERS + 10, at + 16, words, "ink-3", size=11))
    for worker, iteration, version in workers:
        x, y = place[worker]
        if worker in still.waiting:
            result.append(_halo(x, y, node + 4))
        result.append(f'<circle cx="{x}" cy="{y:.1f}" r="{node:.1f}" fill="{INK["ink-2"]}"/>')
        result.append(text(x, y + 4, str(worker), "ground", size=11, weight=700, anchor="middle"))
        words = f"iteration {iteration + 1}, version {version}" if iteration >= 0 else "starting"
        result.append(text(x - node - 14, y + 4, words, "ink-3", size=11, anchor="end"))
    for message in still.messages:
        if message.worker in place and message.server in door:
            result.append(_flying(message, place[message.worker], door[message.server]))
    return result + _key(still, len(workers) + len(servers))


def _boxes(servers: tuple[tuple[int, float, int], ...]) -> dict[int, tuple[float, float]]:
    gap = 8.0 if len(servers) <= 6 else 3.0
    room = BOTTOM - TOP - gap * (len(servers) - 1)
    at, result = TOP, {}
    for server, share, _ in servers:
        result[server] = (at, at + max(3.0, room * share))
        at = result[server][1] + gap
    return result


def _halo(x: float, y: float, radius: float) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="none" stroke="{INK["wait"]}" '
        f'stroke-width="2" stroke-dasharray="3 2.5"/>'
    )


def _flying(message: Message, worker: Place, server: Place) -> str:
    """Draw a triangle that points where the message goes: a push is full, a pull is open."""
    a, b = (worker, server) if message.kind == "push" else (server, worker)
    share = 0.16 + 0.68 * message.share
    x, y = a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share
    return _triangle(x, y, math.degrees(math.atan2(b[1] - a[1], b[0] - a[0])), message.kind)


def _triangle(x: float, y: float, turn: float, kind: str) -> str:
    fill = INK["comm"] if kind == "push" else INK["ground"]
    return (
        f'<polygon points="-7,-6 7,0 -7,6" transform="translate({x:.1f} {y:.1f}) '
        f'rotate({turn:.0f})" fill="{fill}" stroke="{INK["comm"]}" stroke-width="2"/>'
    )


def _key(still: Served, drawn: int) -> list[str]:
    y = BOTTOM + 34
    left_out = len(still.workers) + len(still.servers) - drawn
    return [
        _triangle(26, y - 4, 0, "push"),
        text(40, y, "push: a gradient"),
        _triangle(160, y - 4, 180, "pull"),
        text(174, y, "pull: parameters"),
        _halo(296, y - 4, 7),
        text(310, y, "waits for a server"),
        *([text(16, y + 20, f"{left_out} more ranks", "ink-3", size=11)] if left_out else []),
    ]
