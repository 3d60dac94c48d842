"""The laboratory: form, stage, charts, past runs. It starts and stops runs for its reader."""

from __future__ import annotations

import contextlib
import html
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import ipywidgets as w

from workbench.common import threads
from workbench.common.arguments import checked, each, is_a
from workbench.common.errors import RunTimeout, SpecError, WorkbenchError
from workbench.experiment.spec import Experiment
from workbench.front_end.html_picture import image
from workbench.interface import form
from workbench.interface.laboratory.comparing import Comparing, Questions
from workbench.interface.laboratory.gallery import Gallery
from workbench.interface.laboratory.past import PastRuns
from workbench.interface.laboratory.sheet import Looks, Sheet
from workbench.interface.laboratory.stage import LiveStage
from workbench.interface.laboratory.still import WORDS, still
from workbench.interface.laboratory.way_in import Code, StartButton, WayIn, close_whole, row, title
from workbench.launchers.processes.pool import warm_pool
from workbench.presets.catalogue import Compared, note
from workbench.runs.history import History, Past, describe, is_one_task, label
from workbench.runs.progress import done_in_words
from workbench.runs.run import Run, start
from workbench.studies.comparison.trials import Trial
from workbench.studies.rank_trials import RankTrials, trials_of
from workbench.views.jupyter import hear_at_once
from workbench.views.pages.facts import in_a_line
from workbench.views.pages.figures import CHARTS
from workbench.views.pages.live_charts import Charts, no_charts
from workbench.views.pages.unattended import for_readers

Pasts = Annotated[Sequence[Past], each(is_a(Past), "runs of lab.history", least=0)]
YOURS = "Yours"
UNDOS = 100
# Charts that are there before the reader asks for more, where they say anything.
AT_FIRST = ("loss", "returns", "communication", "clocks", "waiting", "bubble", "activations")
EVERY_SECONDS = 0.5


class Lab(w.VBox):
    """The laboratory of ``wb.lab()``.

    ``run``: the newest run, or None; ``history``: those before.
    """

    def __init__(self, experiment: Experiment | None = None) -> None:
        self.presets = form.presets()
        if experiment is not None:
            yours = form.Preset(YOURS, "The experiment that you brought along.", lambda: experiment)
            self.presets = {YOURS: yours} | self.presets
        first = next(iter(self.presets.values()))
        self.history, self.run = History(), None
        self.comparing: Comparing | None = None  # the comparison that runs, or ran last
        self._lock, self._enabling = threading.Lock(), threading.RLock()
        self._over = threading.Event()  # this laboratory is closed
        self._watcher = threading.Thread()
        self._undo: list[tuple[str, dict[str, Any]]] = []  # preset and values, newest last
        self._undoing = False
        self._make_widgets(first)
        super().__init__(self._parts())
        self.add_class("wb-lab")
        self._changed()
        # While the reader looks at the form: what the first run would have to wait for.
        threads.start(warm_pool, "workbench warm-up")

    run: Run | None

    # ---- what is there

    def _make_widgets(self, first: form.Preset) -> None:
        self.gallery = Gallery(form.presets(), self._run_card, self._change_card)
        self.gallery.unfolded = first.name != YOURS
        self.preset = w.Dropdown(options=[*self.presets], description="Begin with")
        self.preset_words = w.HTML()
        self.back = w.Button(description="Undo", icon="undo", tooltip="Take the last change back")
        self.reset = w.Button(description="Reset to preset", tooltip="As the preset is")
        self.start_button = StartButton()
        # A run is stopped on its stage; this one is there while a comparison goes on.
        self.stop_button = w.Button(description="Stop all", icon="stop", disabled=True)
        self.stop_button.layout.display = "none"
        self.status, self.code = w.HTML(), Code()
        self.sheet = Sheet(first.experiment, lambda: None)
        self.sheet._changed = self._changed
        self._now = self.preset.value, self.sheet.values
        self.stage = LiveStage(on_start=self._on_start)
        self.charts = Charts(None, *AT_FIRST)
        self.questions = Questions(self._start_comparison)
        self.past = PastRuns(self.history, self.show, self.take, self.compare)
        self.preset.observe(lambda _: self._choose(), "value")
        self.back.on_click(lambda _: self.undo())
        self.reset.on_click(lambda _: self._choose())
        self.start_button.on_click(lambda _: self.start())
        self.stop_button.on_click(lambda _: self.stop())
        self.stop_button.add_class("wb-lab-stop")
        hear_at_once(self.stop_button.comm)  # even while a cell runs

    def _parts(self) -> list[Any]:
        style = (Path(__file__).parent / "lab.css").read_text(encoding="utf-8")
        make = partial(Looks().make, w.ToggleButton)
        self.toggles = {
            name: make(name in AT_FIRST, description=chart.title, layout=w.Layout())
            for name, chart in CHARTS.items()
        }
        for toggle in self.toggles.values():
            toggle.observe(lambda _: self._toggle(), "value")
        self._offer()
        buttons = row(self.preset, self.start_button, self.stop_button)
        back = row(self.reset, self.back)
        form = (self.preset_words, back, self.sheet, self.questions)
        self.way_in = WayIn(self.gallery, buttons, *form)
        return [
            w.HTML(f"<style>{style}</style>"),
            self.way_in,
            self.status,
            *(self.stage.absent, self.stage),
            row(w.HTML("<b>Charts shown</b>"), *self.toggles.values()),
            self.charts,
            title("Past runs"),
            self.past,
            title("The code that this runs"),
            self.code,
        ]

    def _offer(self) -> None:
        """Offer only the charts that have something to show of the run."""
        for name, toggle in self.toggles.items():
            toggle.layout.display = "" if name in self.charts.offered else "none"

    def _toggle(self) -> None:
        self.charts.show(*(name for name, toggle in self.toggles.items() if toggle.value))

    # ---- the form

    @property
    def experiment(self) -> Experiment:
        """The experiment in the form. Raises FormError, a SpecError, if it is invalid."""
        return form.experiment(self.sheet.values)

    def _changed(self) -> None:
        """Check the form after a field has changed, and show the code."""
        now = self.preset.value, self.sheet.values
        if now[1] != self._now[1]:
            self._undo = [*self._undo, self._now][-UNDOS:]
        self._now = now
        self.start_button.agreed("")  # it asked about another experiment
        self.back.disabled = not self._undo
        preset = self.presets[self.preset.value]
        self.gallery.chosen = preset.name
        self.preset_words.value = f'<p class="wb-quiet">{html.escape(preset.words)}</p>'
        result = self.sheet.experiment()
        self.reset.disabled = result == preset.experiment
        self.code.text = form.NO_CODE if result is None else form.as_program(result)

    def _choose(self) -> None:
        if not self._undoing:
            self.sheet.values = form.values(self.presets[self.preset.value].experiment)

    def _take_card(self, name: str) -> None:
        """Fill the form with a preset, whatever was changed before."""
        if self.preset.value == name:
            self._choose()
        self.preset.value = name

    def _change_card(self, name: str) -> None:
        """Fill the form with a preset, and show it beside the cards."""
        self._take_card(name)
        self.way_in.put_beside()

    def _run_card(self, name: str) -> None:
        """Run a preset as it is."""
        if not self.start_button.disabled:
            self._take_card(name)
            self.start()

    def undo(self) -> None:
        """Take the last change of the form back, a preset's too."""
        if not self._undo:
            return
        *self._undo, self._now = self._undo
        self._undoing = True
        try:
            self.preset.value, self.sheet.values = self._now
        finally:
            self._undoing = False

    # ---- runs

    def start(self) -> None:
        """Run what the form says, unless something runs already; what cannot be is said there."""
        exp = self.sheet.experiment()
        if exp is None:
            self.way_in.unfold_form()
            self._say(self.sheet.lead_to_what_is_wrong(), wrong=True)
            return
        if not self.start_button.agreed(question := form.question(exp)):
            self._say(question, wrong=True)
            return
        try:
            self._start(exp)
        except SpecError as error:
            self.way_in.unfold_form()
            self.sheet.refuse({"": str(error)})
            self._say("Not started.", wrong=True)
        except (WorkbenchError, OSError) as error:
            self._say(str(error), wrong=True)

    def _start(self, exp: Experiment) -> Run:
        with self._lock:
            self._need_idle()
            self._say("Starting …")
            run = self.run = start(exp)
            preset = self.presets[self.preset.value]
            name = preset.name if exp == preset.experiment else describe(exp)
            note(run.store.metadata, name, exp)
            past = self.history.add(run, name)
        self.way_in.fold()  # room for the stage
        self.show(past)
        self._enable()
        self.past.refresh()
        self._watcher = threads.start(partial(self._watch, run), "workbench lab", self._over.set)
        return run

    def _need_idle(self) -> None:
        """Raise WorkbenchError while something runs, and in a laboratory that is closed."""
        if self._compares or (self.run is not None and not self.run.done):
            raise WorkbenchError("A run is going on: stop it first.")
        if self._over.is_set():
            raise WorkbenchError("This laboratory is closed; wb.lab() opens another one.")

    @property
    def _compares(self) -> bool:
        return self.comparing is not None and not self.comparing.done

    def _enable(self) -> None:
        """Enable what fits what goes on now: the stage may have begun another run meanwhile."""
        with self._enabling:
            compares = self._compares
            busy = compares or (self.run is not None and not self.run.done)
            self.start_button.disabled = self.questions.button.disabled = busy
            self.gallery.busy, self.stop_button.disabled = busy, not busy
            self.stop_button.layout.display = "" if compares else "none"

    def _start_comparison(self, compared: Compared) -> None:
        """Run the experiments of a comparison one after another, each on the stage; at the end all
        are ticked among the past runs, which shows them side by side.
        """
        try:
            with self._lock:
                self._need_idle()
                self._say("Starting …")
                comparing = self.comparing = Comparing(compared, self._begin)
        except (WorkbenchError, OSError) as error:
            self._say(str(error), wrong=True)
            return
        self.way_in.fold()
        self._enable()
        self._watcher = threads.start(
            partial(self._follow, comparing), "workbench lab", self._over.set
        )

    def _begin(self, compared: Compared, trial: Trial) -> Past | None:
        """Start a run of a comparison, and put it on the stage."""
        if self._over.is_set():
            return None
        run = self.run = start(trial.experiment)
        run.store.metadata |= compared.facts()
        past = self.history.add(run, trial.name)
        self.show(past)
        self.past.refresh()
        return past

    def _follow(self, comparing: Comparing) -> None:
        """Show how far a comparison is until it is over, then its runs side by side."""
        while not comparing.wait(EVERY_SECONDS) and not self._over.is_set():
            self._say(f"{comparing.compared.name}: {comparing.words}")
            self.past.refresh()
        if self._over.is_set():
            return
        self.past.tick(comparing.pasts)
        wrong = "; ".join(comparing.errors)
        words = f"{comparing.compared.name}: {comparing.words}"
        self._say(in_a_line(wrong) if wrong else words, wrong=bool(wrong))
        self._enable()

    def _on_start(self, _: Mapping[str, Any]) -> str:
        """Start a run that the stage itself asks for."""
        self._start(self.experiment)
        return "Starting …"

    def stop(self) -> None:
        """Stop what runs, after the iteration that is under way; its record stays."""
        if self.comparing is not None and not self.comparing.done:
            self._say("Stopping …")
            self.comparing.stop()
        elif self.run is not None and not self.run.done:
            self._say("Stopping …")
            self.run.stop()

    @checked
    def show(self, past: Past) -> None:
        """Put a run on the stage, live or past."""
        if past.run is not None:
            self.stage.watch(past.run, trials_of(_Host(self), [past.run]))
            self.charts.watch(past.run)
            self._offer()

    @checked
    def take(self, past: Past) -> None:
        """Fill the form with what a run was, and show it."""
        self.way_in.unfold_form()
        self.sheet.values = form.values(past.experiment)

    @checked
    def compare(self, pasts: Pasts) -> None:
        """Draw the losses of these runs beside each other, if they are two or more."""
        several = pasts if len(pasts) > 1 and is_one_task(pasts) else []
        losses = {label(past): past.losses() for past in several}
        deciding = self.comparing.deciding(several) if self.comparing else no_charts
        self.charts.compare(losses, deciding)

    def _watch(self, run: Run) -> None:
        """Show the state of the run until it is over."""
        while not run.done and not self._over.is_set():
            lasts = f"The run lasts {run.experiment.length}."
            self._say(f"Running: iteration {run.iteration + 1:,}. {lasts}")
            self.past.refresh()
            with contextlib.suppress(RunTimeout):
                run.wait(EVERY_SECONDS, check=False, progress=False)
        if self._over.is_set():
            return
        self.past.refresh()
        if self.run is not run:  # another one has begun: one rank more
            return
        error = run.result.error
        self._say(in_a_line(str(error)) if error else done_in_words(run), wrong=error is not None)
        self._enable()

    def _say(self, words: str, wrong: bool = False) -> None:
        kind = "wb-refused" if wrong else "wb-quiet"
        self.status.value = f'<span class="{kind}" role="status">{html.escape(words)}</span>'

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | None:
        """Return the widget, and for where widgets do not run its gallery as a picture."""
        bundle: dict[str, Any] | None = super()._repr_mimebundle_(**options)
        picture = still(self.presets)
        shown = {"image/svg+xml": picture, "text/html": image(picture, WORDS)}
        return bundle if bundle is None else for_readers(bundle | shown)

    # ---- the end

    def close(self) -> None:
        """End the threads, and the run if it still goes on."""
        super().close()
        if not hasattr(self, "past"):  # it comes of one that was never ready as well
            return
        self._over.set()
        if self.comparing is not None:
            self.comparing.stop()
        if self.run is not None and not self.run.done:
            self.run.stop()
        self.charts.close()
        self.stage.close()
        if self._watcher.is_alive() and self._watcher is not threading.current_thread():
            self._watcher.join(5)
        for part in self.children:
            close_whole(part)

    def __repr__(self) -> str:
        return "Lab()"


class _Host:
    """The host of studies/rank_trials.py: its runs on the laboratory's stage."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def begin(self, exp: Experiment, name: str) -> Run:
        """Start the run of a trial."""
        return self._lab._start(exp)

    def turn(self, run: Any, trials: RankTrials) -> None:
        """Show a run of a trial, or both of its runs."""
        self._lab.stage.watch(run, trials)
        if isinstance(run, Run):
            self._lab.charts.watch(run)
            self._lab._offer()

    def refresh_facts(self) -> None:
        """Send the stage's facts again."""
        self._lab.stage.refresh()
