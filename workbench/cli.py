"""The command line: run an experiment, open the notebooks, serve the web app, show the demo.

Heavy imports wait inside the commands, so that ``workbench --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from workbench import __version__
from workbench.common.output_files import make_ready
from workbench.common.units import counted
from workbench.interface.command_line import EXAMPLES, NO_USER_INTERFACE, Commands, Port, fail
from workbench.interface.job_commands import add as add_job_commands
from workbench.interface.preset_commands import Name as PresetName
from workbench.interface.preset_commands import StopAfter, experiment_of, presets

if TYPE_CHECKING:
    from workbench.runs.run import Run

INTERRUPTED = 130  # the shell's exit status for Ctrl-C
FIRST_NOTEBOOK = "01_ring_all_reduce.ipynb"

app = Commands(
    help="See distributed training happen: real ranks, every chunk recorded.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # which fills the lines of a paragraph
    pretty_exceptions_show_locals=False,
)
app.command()(presets)
console = Console(highlight=False, soft_wrap=True)

# What a server is asked to be, where the words are long.
Host = Annotated[
    str, typer.Option(help="Address to listen on; anything else than 127.0.0.1 lets others in.")
]
Login = Annotated[
    str | None,
    typer.Option(
        help="Ask for a login: a file with lines USER:PASSWORD, or with JSON. A password "
        "itself is better given in the variable than here, where every user of the machine "
        "sees it.",
        envvar="WORKBENCH_BASIC_AUTH",
        metavar="FILE|USER:PASSWORD",
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        help="HOST:PORT by which browsers know this server, behind a proxy say; may be "
        "repeated. Requests to any other host or of any other origin are refused."
    ),
]
Proxy = Annotated[
    bool,
    typer.Option(
        "--proxy",
        help="Every request comes through a proxy that says whose it is (X-Forwarded-For).",
    ),
]
Launchers = Annotated[
    list[str] | None,
    typer.Option(help="A launcher that visitors may name besides local; may be repeated."),
]
AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Allow a spec that carries source code to run it.")
]
Page = Annotated[
    Path | None, typer.Option(help="Write a page that replays the run; opens from disk.")
]
Saved = Annotated[
    Path | None, typer.Option(help="Write all events as Parquet; wb.load() reads them.")
]
Launcher = Annotated[
    str | None, typer.Option(help="What starts the ranks: local, torchrun, mpiexec, ...")
]
LauncherOptions = Annotated[
    str | None, typer.Option(help="Its options, as YAML: 'bind_to: core', '{nodes: 2, ...}'.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the experiment, print what would start its ranks.")
]
Watched = Annotated[
    list[str] | None,
    typer.Option(
        help="A folder that attached jobs record into, one of such folders, or the address of an "
        "attached job's page: visitors see these jobs, and change nothing in them; may be "
        "repeated. On this machine's own address only.",
        metavar="JOB",
    ),
]
DataFolders = Annotated[
    list[str] | None,
    typer.Option(
        help="A folder that tasks may read where visitors name it so; may be repeated. They "
        "name no other place of this machine."
    ),
]


def _print_version(asked: bool) -> None:
    if asked:
        print(f"workbench {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version, and end.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """See distributed training happen: real ranks, every chunk recorded."""


@app.command()
def run(
    spec: Annotated[
        Path | None,
        typer.Argument(
            help="The experiment, as YAML; with --resume: that of the checkpoint.",
            metavar="SPEC",
        ),
    ] = None,
    preset: PresetName = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on from the newest checkpoint in this folder, or from this one."),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(help="What goes wrong in it, as YAML: see wb.Scenario.", exists=True),
    ] = None,
    html: Page = None,
    save: Saved = None,
    allow_code: AllowCode = False,
    stop_after: StopAfter = None,
    launcher: Launcher = None,
    launcher_options: LauncherOptions = None,
    dry_run: DryRun = False,
) -> None:
    """Run the experiment that SPEC describes, or a preset. What was recorded is saved even if the
    run fails.
    """
    import workbench as wb
    from workbench.runs.launching import command_of, launched_by

    if dry_run and (save or html):
        fail(wb.SpecError("--dry-run runs nothing that could be written: no --save, no --html"))
    try:
        experiment, facts = experiment_of(spec, preset, resume, scenario, allow_code, stop_after)
        experiment = launched_by(experiment, launcher, launcher_options)
        if dry_run:
            return console.print(command_of(experiment), markup=False)
        for out in filter(None, (save, html)):
            make_ready(out, "the run")  # now, not after an hour of training
        live = wb.run(experiment)
        live.store.metadata |= facts
        with suppress(KeyboardInterrupt):  # the ranks have ended by then; what there is, is saved
            live.wait(check=False, progress=True)
        if save:
            live.store.save(save)
            console.print(f"saved {save}; wb.load({str(save)!r}) reads it")
        if html:
            live.to_html(html)
            console.print(f"saved {html}; any browser replays it")
    except (wb.WorkbenchError, OSError) as error:
        fail(error)
    finally:
        wb.shutdown()
    _print_result(live)


def _print_result(live: Run) -> None:
    """Print how a run has ended, and end with its status."""
    from workbench.runs.conducting import STOPPED
    from workbench.runs.launching import launch_in_words
    from workbench.runs.progress import in_words

    if live.result.error:
        fail(live.result.error)
    how = in_words(live.result, live.dropped), launch_in_words(live.store.metadata)
    console.print(*map(str, filter(None, (*how, live.recovery()))), sep="\n", markup=False)
    if when := live.store.metadata.get(STOPPED):
        console.print(f"stopped {when}, as the experiment says")
    elif len(live.result.losses) < live.experiment.iterations:
        console.print("stopped before its end")
        raise typer.Exit(INTERRUPTED)


@app.command()
def chaos(
    spec: Annotated[
        Path | None,
        typer.Argument(help="The experiment, as YAML.", metavar="SPEC"),
    ] = None,
    preset: PresetName = None,
    minutes: Annotated[float, typer.Option(help="For how long; Ctrl-C ends it.", min=0)] = 30.0,
    seed: Annotated[int, typer.Option(help="Decides the faults of every run.", min=0)] = 0,
    first: Annotated[int, typer.Option(help="Number of the run to begin with.", min=0)] = 0,
    runs: Annotated[int | None, typer.Option(help="At most so many runs.", min=1)] = None,
    allow_code: AllowCode = False,
) -> None:
    """Run the experiment that SPEC describes, or a preset, again and again, with random faults.

    A run that goes wrong can be repeated with its seed and number.
    """
    import time
    from itertools import islice

    import workbench as wb
    from workbench.studies.chaos import done, trials

    wrong, number, until = list[int](), 0, time.monotonic() + 60 * minutes
    try:
        if spec is None and preset is None:
            raise wb.SpecError("name the experiment's YAML file, or --preset NAME")
        experiment, _ = experiment_of(spec, preset, None, None, allow_code, None)
        what = spec if preset is None else f"--preset {preset!r}"
        with suppress(KeyboardInterrupt):
            for trial in islice(trials(experiment, seed=seed, first=first), runs):
                outcome, number = done(trial), number + 1
                console.print(outcome.words, markup=False)
                if outcome.wrong:
                    wrong.append(trial.number)
                    again = f"workbench chaos {what} --seed {seed} --first {trial.number} --runs 1"
                    console.print(f"       again: {again}", markup=False)
                if time.monotonic() >= until:
                    break
    except (wb.WorkbenchError, OSError) as error:
        fail(error)
    finally:
        wb.shutdown()
    console.print(f"{counted(number, 'run')}, {len(wrong)} wrong{f': {wrong}' if wrong else ''}")
    if wrong:
        raise typer.Exit(1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where your copies of the chapters are; by default runs/chapters."),
    ] = None,
) -> None:
    """Open your copies of the chapters in JupyterLab, at the first. They have no outputs yet. What
    you write in them stays, also when chapters change. Further options go to JupyterLab
    (--no-browser, ...).
    """
    if not find_spec("jupyterlab"):
        fail(NO_USER_INTERFACE)
    from workbench.common.errors import WorkbenchError
    from workbench.interface.chapter_copies import bring, trust

    first = find_notebook()
    folder = folder or first.parent.parent / "runs" / "chapters"
    try:
        written = bring(first.parent, folder)
    except WorkbenchError as error:
        fail(error)
    for beside in (one for one in written if " new" in one.stem):
        console.print(f"You have edited a chapter that has changed: yours stays, {beside} is new.")
    if first.parent == Path(__file__).parent.parent / "notebooks":
        trust(written)
    notebook = folder / first.name
    console.print(f"JupyterLab opens {notebook}. Shift-Enter runs a cell. Here: Ctrl-C ends it.")
    # No question about news over the first picture, and none at Ctrl-C: there may be no terminal.
    options = ["--ServerApp.answer_yes=True"]
    settings = str(Path(__file__).parent / "interface" / "jupyter_settings")
    others = os.environ.get("JUPYTER_CONFIG_PATH")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, (settings, others)))
    if os.geteuid() == 0:
        options.append("--allow-root")  # a container's only user; refused otherwise
    command = [sys.executable, "-m", "jupyterlab", str(notebook), *options, *context.args]
    os.execv(sys.executable, command)


@app.command()
def serve(
    port: Port = 5006,
    host: Host = "127.0.0.1",
    basic_auth: Login = None,
    origin: Origins = None,
    proxy: Proxy = False,
    max_ranks: Annotated[int, typer.Option(help="Ranks that one run may have.", min=1)] = 16,
    max_runs: Annotated[int, typer.Option(help="Runs that may be live at a time.", min=1)] = 4,
    max_minutes: Annotated[
        float, typer.Option(help="Minutes that one run may last.", min=0.01)
    ] = 30.0,
    max_memory: Annotated[
        str, typer.Option(help="Memory that the ranks of one run may hold and reserve together.")
    ] = "4 GB",
    max_threads: Annotated[
        int, typer.Option(help="Computing threads of one run, over all its ranks.", min=1)
    ] = 64,
    max_rows: Annotated[
        int, typer.Option(help="Rows that one run may record.", min=1)
    ] = 50_000_000,
    grace: Annotated[
        float, typer.Option(help="Seconds after its last page has gone until a run ends.", min=0)
    ] = 15.0,
    data: DataFolders = None,
    launcher: Launchers = None,
    watch: Watched = None,
) -> None:
    """Serve the web app. Runs started there are data only: it never takes code."""
    if not find_spec("panel"):
        fail(NO_USER_INTERFACE)
    from workbench.common.errors import WorkbenchError
    from workbench.common.units import size_bytes
    from workbench.interface.app.limits import Limits
    from workbench.interface.app.login import read_keys
    from workbench.interface.app.serving import Options
    from workbench.interface.app.serving import serve as serve_app

    try:
        limits = Limits(
            max_ranks,
            max_runs,
            max_minutes,
            size_bytes(max_memory),
            max_threads,
            max_rows,
            grace,
            tuple(data or ()),
            launchers=tuple(launcher or ()),
        )
        keys = None if basic_auth is None else read_keys(basic_auth)
        folders = tuple(watch or ())
        serve_app(Options(port, host, tuple(origin or ()), keys, proxy, limits, folders))
    except WorkbenchError as error:
        fail(error)


@app.command()
def about() -> None:
    """Say which versions are here, and what moves messages: C or Python."""
    from workbench.common.errors import WorkbenchError
    from workbench.interface.about import about as what

    try:
        console.print(str(what()), markup=False)
    except WorkbenchError as error:
        fail(error)


@app.command()
def demo(
    html: Annotated[
        Path | None, typer.Option(help="Where the replay goes [runs/demo.html].")
    ] = None,
) -> None:
    """Train LeNet with four ranks over the ring, and say in words and numbers what was measured."""
    import workbench as wb
    from workbench.interface.demo import main

    try:
        holds = main(console, html)
    except (wb.WorkbenchError, OSError) as error:
        fail(error)
    finally:
        wb.shutdown()
    raise typer.Exit(0 if holds else 1)


def find_notebook() -> Path:
    """Return the first notebook of the current folder, where that is a checkout, else of the
    checkout that this package is in: of two clones it is the one where the reader stands.
    """
    for folder in (Path.cwd(), Path(__file__).parent.parent):
        if (path := folder / "notebooks" / FIRST_NOTEBOOK).exists():
            return path
    fail(
        f"found no notebooks/{FIRST_NOTEBOOK} in {Path.cwd()} or beside the package: "
        "the notebooks come with the repository; clone it and run `make lab` there"
    )


add_job_commands(app)

if __name__ == "__main__":
    app()
