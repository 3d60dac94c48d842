"""The bands of a rank's memory, and their rows in the event table.

A band is what one layer holds of one kind since one moment of training: the activations of layer 3
for microbatch 2, say. Whenever its size changes there is a row of kind ``memory``:

    name     the kind of memory            value   bytes of that kind, all bands together
    phase    the layer, "" for no layer    nbytes  bytes of this band; 0: it is freed
    chunk    the number of the band        microbatch, stage   those in which it was born

Rows that are written at once have one moment: between moments nothing changes.
"""

from __future__ import annotations

from workbench.recording.events import CODE, NOWHERE, Where, now
from workbench.recording.recorder import Recorder

PARAMETERS, GATHERED = "parameters", "gathered parameters"
GRADIENTS, UNREDUCED = "gradients", "unreduced gradients"
OPTIMIZER, ACTIVATIONS = "optimizer state", "activations"
BUFFERS, SENT = "communication buffers", "being sent"
_MEMORY = CODE["memory"]


class Band:
    """Bytes of one kind that one layer holds since one moment."""

    __slots__ = ("kind", "layer", "nbytes", "number", "where")

    def __init__(self, number: int, kind: str, layer: str, where: Where) -> None:
        self.number, self.kind, self.layer, self.where = number, kind, layer, where
        self.nbytes = 0


class Bands:
    """The bands that are held now, and what is still to be written of them (``changed``)."""

    def __init__(self, recorder: Recorder | None) -> None:
        """Write rows with this recorder; None, or one that is off: none."""
        self._recorder = recorder if recorder is not None and recorder.active else None
        self._held: dict[tuple[str, str, Where], Band] = {}
        self._standing: dict[tuple[str, str], Band] = {}  # of kinds with one band a layer
        self.changed: dict[Band, None] = {}
        self._count = 0  # of bands, ever

    def standing(self, kind: str, layer: str) -> Band:
        """Return the one band of this kind and layer, a new one if the last is freed."""
        band = self._standing.get((kind, layer))
        if band is None or not band.nbytes:
            band = self._standing[kind, layer] = self.here(kind, layer)
        return band

    def here(self, kind: str, layer: str) -> Band:
        """Return the band of this kind and layer that is born here in training."""
        where = NOWHERE if self._recorder is None else self._recorder.where
        key = (kind, layer, where)
        if key not in self._held:
            self._held[key] = Band(self._count, *key)
            self._count += 1
        return self._held[key]

    def write(self, totals: dict[str, int]) -> None:
        """Write a row for each band that has changed; ``totals``: bytes by kind."""
        changed, self.changed = self.changed, {}
        for band in changed:
            if not band.nbytes:
                self._held.pop((band.kind, band.layer, band.where), None)
        recorder = self._recorder
        if recorder is None:
            return
        lane, name, moment = recorder.lane("compute"), recorder.name, now()
        here = recorder.where
        for band in changed:
            born = band.where
            lane.context(where=Where(here.iteration, born.microbatch, born.stage, here.version))
            kind, total = name(band.kind), float(totals[band.kind])
            numbers = (-1, -1, band.number, -1, band.nbytes, kind, name(band.layer), total)
            lane.write(_MEMORY, moment, moment, *numbers)
        lane.context(where=here)  # that of the row that is under way
