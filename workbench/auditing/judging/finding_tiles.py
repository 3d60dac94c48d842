"""The tiles of a job: leaves that are trained, and what was used of each."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np

from workbench.auditing.judging.case import LONGER, Asking, Case, Deciding, braces, dot, listed
from workbench.auditing.judging.tiles import Tile
from workbench.auditing.messages import Ask, Copy, Leaf, Seen


def has_changed(leaf: Leaf) -> bool:
    return not np.array_equal(leaf.before, leaf.after)


def find_tiles(case: Case) -> None:
    """Find the tiles: leaves with equal bits under one name on several ranks are one."""
    every = [
        (rank, name, leaf)
        for rank, seen in enumerate(case.base)
        for name, leaf in seen.leaves.items()
        if leaf.before.size
        and (
            leaf.owner not in ("", "leaf")
            or leaf.parts is not None
            or (has_changed(leaf) and not leaf.optimized)
        )
    ]
    trained = [
        one
        for one in every
        if one[2].parameter or one[2].optimized or (has_changed(one[2]) and not case.stepped)
    ]
    chosen = trained or every
    groups = defaultdict[object, list[Copy]](list)
    for rank, name, leaf in chosen:
        digest = hashlib.sha256(leaf.before.tobytes()).hexdigest()
        groups[name, str(leaf.shards), digest, leaf.before.shape].append((rank, name))
    case.leaf = {(rank, name): leaf for rank, name, leaf in chosen}
    case.tiles = [
        Tile(copies[0][1], copies, case.leaf[copies[0]], case.salt) for copies in groups.values()
    ]
    idle = [one for one in case.tiles if _is_idle(case, one)]
    if idle and len(idle) < len(case.tiles):  # frozen, detached, averages of others
        case.words.note(
            "no gradient reaches, or no optimizer steps here: "
            f"{listed([one.name for one in idle])}. Left out"
        )
        case.tiles = [one for one in case.tiles if one not in idle]
    case.leaf = {copy: case.leaf[copy] for one in case.tiles for copy in one.copies}


def _is_idle(case: Case, tile: Tile) -> bool:
    """Return whether a tile is not trained in this update."""

    def idle(leaf: Leaf) -> bool:
        silent = leaf.parts is None and not (leaf.optimized and has_changed(leaf))
        return silent or (case.stepped and not leaf.optimized and not has_changed(leaf))

    return all(idle(case.leaf[copy]) for copy in tile.copies)


def used(case: Case, results: list[Seen]) -> dict[Copy, np.ndarray]:
    """Return the gradient that the update of a run was made of."""
    gradients: dict[Copy, np.ndarray] = {}
    by_hand = []
    for copy, known in case.leaf.items():
        leaf = results[copy[0]].leaves.get(copy[1])
        if leaf is None:
            gradients[copy] = np.zeros_like(known.before)
            continue
        step = leaf.before - leaf.after
        grad = None if leaf.grad is None else leaf.grad.reshape(step.shape)
        if not case.stepped and step.any() and grad is not None and grad.any():
            by_hand.append(dot(step, grad) / dot(grad, grad))
        if case.stepped or step.any():
            gradients[copy] = step
        else:
            gradients[copy] = np.zeros_like(step) if grad is None else grad
    if by_hand and results is case.base:
        case.rate = float(np.median(by_hand))
        case.words.note(
            f"no optimizer of torch's: parameters were changed by hand, at lr = {case.rate:.4g}"
        )
    if case.stepped or not case.rate:
        return gradients
    return {copy: one / case.rate for copy, one in gradients.items()}


def tell_copies_apart(case: Case) -> Asking:
    """Mark copies that would differ after the update; constants, which begin alike, may be shards
    and no copies.
    """
    case.loudest = max(float(np.abs(one).max()) for one in case.whole.values())
    sure = {
        (a, b)
        for tile in case.tiles
        if len(tile.copies) > 1 and not tile.is_constant
        for a in tile.ranks
        for b in tile.ranks
    }
    for tile in [*case.tiles]:
        tile.apart = _is_apart(case, tile)
        if not tile.apart or tile.shards is not None:
            continue
        shards = _sharded_beside(case, tile)
        related = all((a, b) in sure for a in tile.ranks for b in tile.ranks if a != b)
        known_kind = "leaf" in tile.owner or "Norm" in tile.owner
        doubtful = tile.is_constant and not related and not known_kind
        if shards or (doubtful and (yield from _reaches_others(case, tile))):
            parts = _divided(case, tile, shards)
            case.tiles.remove(tile)
            for part in parts:
                shard = Tile(tile.name, part, case.leaf[part[0]], case.salt)
                shard.apart = _is_apart(case, shard)
                case.tiles.append(shard)
            case.words.note(
                f"{tile.name} begins alike on ranks {braces(tile.ranks)} and is updated apart: "
                f"taken for {len(parts)} shards"
                + (f", as the rest of {tile.home or 'its module'} is" if shards else "")
            )


def _is_apart(case: Case, tile: Tile) -> bool:
    return any(_differs(case, tile.copies[0], copy) for copy in tile.copies[1:])


def _differs(case: Case, a: Copy, b: Copy) -> bool:
    """Return whether two copies use different gradients."""
    first = case.whole[a]
    loud = max(float(np.abs(first).max()), 1e-9 * case.loudest)
    return bool(np.abs(case.whole[b] - first).max() > case.tolerance * loud)


def _sharded_beside(case: Case, tile: Tile) -> list[set[int]]:
    """Return the ranks of each shard of what stands beside a tile in its module: a shard that data
    parallelism replicates is on several of them. Nothing where none of it is sharded.
    """
    beside = [
        {*one.ranks}
        for one in case.tiles
        if one is not tile and one.home == tile.home and not one.is_constant
    ]
    shards = [ranks for ranks in beside if ranks < {*tile.ranks}]
    return [ranks for at, ranks in enumerate(shards) if ranks not in shards[:at]]


def _divided(case: Case, tile: Tile, shards: list[set[int]]) -> list[list[Copy]]:
    """Return the copies of a tile by the shard that they are of."""
    parts = list[list[Copy]]()
    for copy in tile.copies:
        for part in parts:
            if _is_one_shard(case, part[0], copy, shards):
                part.append(copy)
                break
        else:
            parts.append([copy])
    return parts


def _is_one_shard(case: Case, a: Copy, b: Copy, shards: list[set[int]]) -> bool:
    """Return whether two copies are of one shard: by ``shards``, the ranks of each, or, where these
    do not name the rank, if both use the same gradient.
    """
    known = [ranks for ranks in shards if b[0] in ranks]
    if known:
        return any(a[0] in ranks for ranks in known)
    return not _differs(case, a, b)


def _reaches_others(case: Case, tile: Tile) -> Deciding:
    """Return whether a nudge on one of the ranks moves the loss of another that holds the tile. A
    shard does, as its rank computes for others, too; a copy is used at home.
    """
    rank = tile.ranks[0]
    (results,) = yield from case.ask(case.nudged([tile], 1, only=rank, times=LONGER))
    return bool(case.moved(results) & {*tile.ranks} - {rank})


def scale_nudges(case: Case) -> None:
    """Lengthen the nudge where the gradient is small: no tile must hide behind the others."""
    if case.single:
        return
    sizes = {
        tile: max(float(np.linalg.norm(case.whole[copy])) for copy in tile.copies)
        for tile in case.tiles
    }
    middle = float(np.median([one for one in sizes.values() if one] or [1.0]))
    for tile, size in sizes.items():
        tile.scale = float(np.clip(middle / size, 0.1, 100)) if size else 1.0


def find_old(case: Case) -> Asking:
    """Measure the part of a later update that none of its losses gives: what is left of the one
    before.
    """
    if case.update == 1:
        return
    (results,) = yield from case.ask(Ask(rest=0.0))
    silent = used(case, results)
    notices = defaultdict[tuple[bool, str], list[str]](list)
    for tile in case.tiles:
        for copy in tile.copies:
            loud = float(np.abs(case.whole[copy]).max())
            if np.abs(silent[copy]).max() > 1e-9 * loud > 0:
                notices[_old_words(case, copy, silent[copy])].append(tile.name)
                case.old[copy] = silent[copy]
    for (is_old, words), names in notices.items():
        for name in dict.fromkeys(names):
            (case.words.blame if is_old else case.words.ask)(f"{name}: {words}", name)
    case.whole = {copy: one - case.old.get(copy, 0) for copy, one in case.whole.items()}


def _old_words(case: Case, copy: Copy, silent: np.ndarray) -> tuple[bool, str]:
    """Return whether what no loss gives is a multiple of the update before, and words for it."""
    past, factor = case.leaf[copy].past, 0.0
    if past is not None and past.size == silent.size and past.any():
        flat = past.reshape(silent.shape)
        factor = dot(silent, flat) / dot(flat, flat)
        if np.linalg.norm(silent - factor * flat) >= 1e-6 * np.linalg.norm(silent):
            factor = 0.0
    words = f"a part of the update {case.update} comes from none of its losses"
    if factor and case.stepped:
        return True, (
            f"{words}: {factor:.4g} times the gradient of the update before (is it not set to "
            "zero, or is a buffer stale?)"
        )
    return (
        False,
        f"{words}, nor from the update before (a residual, momentum by hand?). Is it meant?",
    )
