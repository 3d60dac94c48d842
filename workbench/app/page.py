"""One session of the web app: a small form, the stage, and the run that the button started.

The page takes numbers only; they become a validated Experiment. Nothing runs until the button is
pressed, and what runs ends with the session.
"""

from __future__ import annotations

import uuid
from typing import Any

import panel as pn
from panel.custom import AnyWidgetComponent

from workbench._assets import stage_module, theme
from workbench.views import Message
from workbench.views.stream import Pump, Stream


class Stage(AnyWidgetComponent):
    """The stage in a page. ``watch`` a run; watching another one leaves the first."""

    _esm = stage_module()
    _stylesheets = [theme()]  # noqa: RUF012 - Panel's own form

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._stream: Stream | None = None
        self._pump: Pump | None = None

    def watch(self, run: Any) -> None:
        self.leave()
        self._stream = Stream(run, uuid.uuid4().hex)
        self._pump = Pump(self._stream, self._push)
        self._pump.start()

    def leave(self) -> None:
        if self._pump:
            self._pump.stop()

    def _push(self, message: Message) -> None:
        self.send({**message.header, "buffers": [message.payload] if message.payload else []})

    def _handle_msg(self, data: Any) -> None:
        if data.get("type") == "hello" and self._stream:
            self._push(self._stream.history())


class RingPage:
    """The form, the button, the stage. The run belongs to the session."""

    def __init__(self) -> None:
        self.run: Any = None
        self.ranks = pn.widgets.IntInput(name="Ranks", value=4, start=1, end=16, width=90)
        self.iterations = pn.widgets.IntInput(
            name="Iterations", value=200, start=1, end=100_000, step=50, width=110
        )
        self.latency = pn.widgets.FloatInput(
            name="Latency of link 0 → 1, ms", value=0.0, start=0.0, end=1000.0, step=5.0, width=180
        )
        self.button = pn.widgets.Button(name="Run", button_type="primary", width=110, align="end")
        self.words = pn.pane.Str("", styles={"color": "#bc1e2c"}, visible=False)
        self.stage = Stage(sizing_mode="stretch_width")
        self.button.on_click(lambda _: self.start())

    def experiment(self) -> Any:
        """What the form says. Raises SpecError if it cannot be."""
        import workbench as wb

        links = {(0, 1): wb.Link(latency=f"{self.latency.value} ms")} if self.latency.value else {}
        return wb.Experiment(
            strategy="data_parallel",
            task="lenet_digits",
            ranks=self.ranks.value or 0,
            iterations=self.iterations.value or 0,
            network=wb.Network(links=links),
        )

    def start(self) -> None:
        """End the run before, start the next. What cannot be is said in words."""
        import workbench as wb

        self.end()
        self.words.visible = False
        try:
            self.run = wb.run(self.experiment())
        except (wb.WorkbenchError, ValueError) as error:
            self.words.object, self.words.visible = str(error), True
            return
        self.stage.watch(self.run)

    def end(self) -> None:
        """Stop what runs for this session."""
        self.stage.leave()
        if self.run is not None and not self.run.done:
            self.run.stop()
        self.run = None

    def _destroyed(self, _: object) -> None:
        self.end()

    def servable(self) -> None:
        """Put the page on the air, and tie the run to the session."""
        pn.state.on_session_destroyed(self._destroyed)
        title = pn.pane.HTML(
            "<h1 style='font-size:20px;margin:0'>Watch a ring all-reduce</h1>"
            "<p style='margin:4px 0 0'>Real processes train LeNet-5 on handwritten digits and "
            "average their gradients around a ring. Press Run, then slow a link and run again.</p>"
        )
        form = pn.Row(self.ranks, self.iterations, self.latency, self.button)
        parts = (title, form, self.words, self.stage)
        column = pn.Column(*parts, max_width=1000, sizing_mode="stretch_width")
        column.servable(title="Ring all-reduce")
