"""Servers and workers of a still picture, drawn: the left half of svg.py where a run has them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from workbench.front_end.svg import INK, Point, line, made_line, text
from workbench.views.stills.server import Message, Served

TOP, BOTTOM = 92.0, 292.0
WORKERS, SERVERS, BOX = 190.0, 348.0, 120.0  # x of the discs, of the boxes, a box's width
LEADS, LABELS, BAR = 40.0, 166.0, 110.0  # pixels of the largest lead; x of words' end; of a bar
# theme.css, light: how many updates a worker's version lacks, the first none; computing
AGES = ("#30145c", "#302b77", "#25448e", "#005c8e", "#007286", "#008677", "#49915e", "#859349")
COMPUTING = "#2587c8"
MOST = 12  # ranks of a kind that are drawn one by one


def marks(still: Served) -> list[str]:
    """Draw SVG elements. A server's box is as high as its share of the parameters; a worker's disc
    is tinted by how old the version is that it computes on, and is the nearer to the wall the
    further the worker is ahead of the slowest.
    """
    workers, servers = still.workers[:MOST], still.servers[:MOST]
    step = (BOTTOM - TOP) / max(len(workers), 1)
    node = max(5.0, min(15.0, step / 2 - 3))
    slowest = min((iteration for _, iteration, _ in still.workers), default=0)
    place = {
        worker: (WORKERS + _lead(iteration - slowest, still.bound), TOP + step * (k + 0.5))
        for k, (worker, iteration, _) in enumerate(workers)
    }
    boxes = _boxes(servers)
    door = {server: (SERVERS, (low + high) / 2) for server, (low, high) in boxes.items()}
    result = [_link(still, worker, server, place, door) for worker in place for server in door]
    for server in servers:
        result.extend(_server(server, boxes[server[0]], still))
    if still.bound is not None:
        wall = WORKERS + LEADS * (still.bound > 0) + node + 7
        result.append(line((wall, TOP - 4), (wall, BOTTOM + 4), "wait", 2.5))
    times = {worker: shares for worker, *shares in still.times}
    for worker, iteration, version in workers:
        x, y = place[worker]
        behind = max(0, still.newest - version) if iteration >= 0 else 0
        if worker in still.waiting:
            result.append(_halo(x, y, node + 4))
        fill = AGES[min(len(AGES) - 1, behind)]
        result.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{node:.1f}" fill="{fill}"/>')
        result.append(text(x, y + 4, str(worker), "ground", size=11, weight=700, anchor="middle"))
        held = f"version {version}"
        held += f", {behind} behind" if behind and len(still.servers) == 1 else ""
        words = f"iteration {iteration + 1}, {held}" if iteration >= 0 else "starting"
        if worker in times and step >= 30:
            lines = ((y - 8, f"iteration {iteration + 1}"), (y + 4, held))
            result += [text(LABELS, at, one, "ink-3", size=11, anchor="end") for at, one in lines]
            result.extend(_time(times[worker], y + 8))
        else:
            result.append(text(LABELS, y + 4, words, "ink-3", size=11, anchor="end"))
    for message in still.messages:
        if message.worker in place and message.server in door:
            result.append(_flying(message, place[message.worker], door[message.server]))
    return result + _key(still, len(workers) + len(servers))


def _link(
    still: Served, worker: int, server: int, place: Mapping[int, Point], door: Mapping[int, Point]
) -> str:
    """Draw a worker's link to a server: dashed where one of its two directions is emulated."""
    ways = ((worker, server), (server, worker))
    cuts = [still.made_links[way] for way in ways if way in still.made_links]
    ends = place[worker], door[server]
    return made_line(*ends, down=all(cuts)) if cuts else line(*ends, "rule", 1.5)


def _lead(clocks: int, bound: int | None) -> float:
    """Return how far to the right a worker stands that is ahead of the slowest by ``clocks``."""
    return LEADS * min(1.0, clocks / bound) if bound else 0.0


def _server(
    server: tuple[int, float, int], box: tuple[float, float], still: Served
) -> Iterator[str]:
    """Draw a server's box, its words, and the gradients that wait in it."""
    rank, share, version = server
    low, high = box
    yield (
        f'<rect x="{SERVERS}" y="{low:.1f}" width="{BOX}" height="{high - low:.1f}" rx="3" '
        f'fill="{INK["panel"]}" stroke="{INK["edge"]}"/>'
    )
    part, small = f"{share * 100:.0f} %", high - low < 34
    at = (low + high) / 2 + (4 if small else -3)
    yield text(SERVERS + 10, at, f"server {rank}", "ink", weight=700)
    if small:
        yield text(SERVERS + BOX - 10, at, part, "ink-3", size=11, anchor="end")
        return
    yield text(SERVERS + 10, at + 16, f"{part}, version {version}", "ink-3", size=11)
    queued = [worker for at_server, worker in still.queued if at_server == rank]
    if queued and high - low >= 60:
        yield text(SERVERS + 10, at + 34, f"in its queue: {len(queued)}", "comm", size=11)
        for k in range(min(len(queued), 8) if high - low >= 110 else 0):
            yield _triangle(SERVERS + 17 + 13 * k, at + 46, 0, "push")


def _time(shares: Sequence[float], y: float) -> Iterator[str]:
    """Draw what a worker's time went into, as a bar below its words."""
    x = LABELS - BAR
    yield f'<rect x="{x}" y="{y:.1f}" width="{BAR}" height="5" fill="{INK["rule"]}"/>'
    for share, color in zip(shares, (COMPUTING, INK["comm"], INK["wait"]), strict=True):
        width = BAR * share
        yield (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="5" fill="{color}"/>')
        x += width


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


def _flying(message: Message, worker: Point, server: Point) -> str:
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
    y = BOTTOM + 26
    left_out = len(still.workers) + len(still.servers) - drawn
    more = 6 * (len(still.pushes) - len("gradient"))  # pixels, of a longer name
    result = [
        _triangle(26, y - 4, 0, "push"),
        text(40, y, f"push: a {still.pushes}"),
        _triangle(148 + more, y - 4, 180, "pull"),
        text(162 + more, y, "pull: parameters"),
        _halo(272 + more, y - 4, 7),
        text(286 + more, y, "waits for a server"),
    ]
    if still.bound is not None:
        x, low = (18, y + 36) if more else (404, y)  # a longer name leaves no room beside it
        result.append(line((x, low - 10), (x, low + 2), "wait", 2.5))
        result.append(text(x + 8, low, f"wall: {still.bound} ahead"))
    y += 20
    for x, color, words in (
        (16, COMPUTING, "computing"),
        (94, INK["comm"], "push and pull"),
        (192, INK["wait"], "waiting"),
    ):
        result.append(f'<rect x="{x}" y="{y - 7}" width="10" height="5" fill="{color}"/>')
        result.append(text(x + 14, y, words, size=11))
    for k, fill in enumerate(AGES):
        result.append(f'<rect x="{272 + 9 * k}" y="{y - 9}" width="8" height="9" fill="{fill}"/>')
    result.append(text(348, y, f"0 to {len(AGES) - 1} or more updates behind", size=11))
    if left_out:
        result.append(text(126 if more else 16, y + 15, f"{left_out} more ranks", "ink-3", size=11))
    return result
