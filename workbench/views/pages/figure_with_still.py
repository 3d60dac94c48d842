"""A Plotly figure with a still picture beside it: a notebook that was saved shows it wherever it is
read, where no script of Plotly's runs too.
"""

from __future__ import annotations

import plotly.graph_objects as go

from workbench.analysis.chart_cells import Cell
from workbench.views.stills.chart_svg import drawable, svg


class Pictured(go.Figure):
    """``figure`` as it is. Its picture is of ``cell``, and stays when the figure is changed."""

    _still = ""  # a copy of it has none

    def _ipython_display_(self) -> None:
        import plotly.io as pio
        from IPython.display import display

        # Where figures are shown in another way (a page of their own, a frame), that stays so.
        if self._still and "plotly_mimetype" in str(pio.renderers.default):
            display({**self._repr_mimebundle_(), "image/svg+xml": self._still}, raw=True)
        else:
            super()._ipython_display_()


def with_picture(figure: go.Figure, cell: Cell) -> go.Figure:
    """Return the figure with the still picture of ``cell``, a chart of the light theme; the figure
    itself if such a chart has no still picture.
    """
    if not drawable(cell):
        return figure
    result = Pictured(figure)
    result._still = svg(cell)
    return result
