"""Commands for jobs that someone else started, or that know nothing of the workbench.

Heavy imports wait inside the commands, so that ``workbench --help`` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.common.output_files import make_ready
from workbench.interface.command_line import NO_USER_INTERFACE, Port, fail, has_screen

DEFAULT_PORT = 5006
WRONG_UPDATE = 3  # exit status of an audit that is strict
Audit = Annotated[
    bool,
    typer.Option(
        "--audit", help="Judge the job's first update before it starts: is it the one that is due?"
    ),
]
AuditStrict = Annotated[
    bool,
    typer.Option(
        "--audit-strict", help="As --audit; where the update is wrong, the job does not start."
    ),
]


def add(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(watch)
    as_given = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=as_given)(attach)
    app.command(name="open")(open_files)
    app.command()(stacks)


def watch(
    job: Annotated[
        str,
        typer.Argument(
            help="The folder that WORKBENCH_TRACE names, which may come later; or the address of "
            "an attached job's page.",
            metavar="JOB",
        ),
    ],
    port: Port = DEFAULT_PORT,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Watch a job live that someone else started with `WORKBENCH_TRACE=FOLDER`.

    Its ranks cannot be touched from here. The page is for this machine only.
    """
    if not find_spec("panel"):
        fail(NO_USER_INTERFACE)
    from workbench.common.errors import WorkbenchError
    from workbench.interface.app.watch_page import serve_run
    from workbench.runs.attach import Watching

    try:
        watching = Watching(job)
        words = f"{watching.folder} · the ranks belong to the job: nothing here changes them"
        _show_later(port, browser)
        ready = f"Following {watching.folder} at"
        folder = watching.folder
        serve_run(watching, port, title=folder.name, words=words, ready=ready, folder=folder)
        watching.close()
    except WorkbenchError as error:
        fail(error)


def attach(
    context: typer.Context,
    observe: Annotated[
        bool,
        typer.Option("--observe", help="Leave the job's backend alone: record its operations."),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Where the records go; without it a new folder in runs/.", metavar="DIR"),
    ] = None,
    page: Annotated[bool, typer.Option(help="Serve a page that shows the job live.")] = True,
    port: Annotated[
        int, typer.Option(help="Port of the page; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
    audit: Audit = False,
    audit_strict: AuditStrict = False,
) -> None:
    """Run a job that knows nothing of the workbench, and see it: `workbench attach -- torchrun
    --nproc-per-node 4 train.py`.

    The script needs no change. Groups whose tensors lie on a CPU run over the workbench's backend,
    chunk by chunk, under the name that the script asks for; all others, and with --observe every
    group, are the script's own, and their operations are recorded. The command becomes the job:
    output, signals and exit status are the job's. With --audit the job runs to its first update
    several times before that (see `wb.audit`), and the verdict is printed; with --audit-strict a
    wrong update ends the command with status 3.
    """
    import time

    from workbench.attaching.command import prepare
    from workbench.common.errors import WorkbenchError

    if port and not page:
        fail("--no-page serves none, so no --port")
    if audit or audit_strict:
        _audit_first(context.args, strict=audit_strict, quiet=quiet)
    folder = trace or Path("runs", f"attached-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    try:
        job = prepare(context.args, folder, observe=observe)
        words = [f"records {job.trace}"]
        if page and find_spec("panel"):
            from workbench.interface.app.attached_page import open_beside

            words.insert(0, f"page {open_beside(job.trace, port)}")
        elif page:
            words.append(f"no page: {NO_USER_INTERFACE}")
    except WorkbenchError as error:
        fail(error)
    if not quiet:
        print(f"[workbench] {' · '.join(words)}", file=sys.stderr, flush=True)
    job.become()


def _audit_first(words: list[str], *, strict: bool, quiet: bool) -> None:
    """Audit the job that these words start; end where its update is wrong and ``strict`` is set."""
    from workbench.attaching.command import check_command
    from workbench.auditing.audit import audit_command
    from workbench.common.errors import WorkbenchError

    try:
        check_command(words)
        verdict = audit_command(words, progress=not quiet)
    except WorkbenchError as error:
        fail(error)
    if not quiet:
        print("\n".join(f"[audit] {one}" for one in str(verdict).splitlines()), file=sys.stderr)
    if strict and verdict.verdict == "WRONG":
        raise typer.Exit(WRONG_UPDATE)


def stacks(
    process: Annotated[
        int | None,
        typer.Argument(
            help="The job's torchrun or mpiexec, or one of its ranks: a process number.",
            metavar="PROCESS",
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print every thread's whole stack.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show where each rank of a running job is: at which line, in which collective.

    The job needs no change: py-spy reads its memory, twice, and pauses it for milliseconds. A rank
    that is at the same place both times may hang. Ranks on this host only.
    """
    from dataclasses import asdict

    from workbench.common.errors import WorkbenchError
    from workbench.runs.group_waits import group_waits, wait_words
    from workbench.runs.running_job import running_ranks
    from workbench.runs.stacks import findings, read_stacks

    if full and as_json:
        fail("--json has every stack already: no --full")
    try:
        ranks = read_stacks(running_ranks(process))
    except WorkbenchError as error:
        fail(error)
    if as_json:
        return print(json.dumps([asdict(one) | {"words": one.words} for one in ranks], indent=1))
    for one in ranks if full else ():
        print(f"rank {one.process.rank}, process {one.process.pid}: {one.process.command}")
        for stack in one.stacks:
            print(f"  thread {stack.thread}{', on a core' if stack.active else ''}")
            for frame in stack.frames:
                print(f"    {frame.file}:{frame.line} {frame.function}")
    waits = wait_words(group_waits([one.process for one in ranks]))
    print("\n".join(findings(ranks, waits)))


def open_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A saved run, a trace folder, or files of torch's profiler or flight recorder, of "
            "Horovod or Chakra: one a rank, or their folder.",
            metavar="FILE",
        ),
    ],
    port: Port = DEFAULT_PORT,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    html: Annotated[
        Path | None, typer.Option(help="Write a page that replays it, and serve none.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write all events as Parquet, and serve no page.")
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="Write a trace for ui.perfetto.dev, and serve no page.")
    ] = None,
    chakra: Annotated[
        Path | None,
        typer.Option(help="Write a Chakra trace a rank into this folder, and serve no page."),
    ] = None,
) -> None:
    """Show what was recorded, by the workbench or by others, or write it in another form."""
    from workbench.common.errors import WorkbenchError
    from workbench.formats.reading import read
    from workbench.runs.loaded import Loaded, load

    written = [path for path in (html, save, perfetto, chakra) if path is not None]
    if written and port != DEFAULT_PORT:
        fail("what writes a file serves no page, so no --port")
    try:
        for path in written:  # now, not after much was read
            make_ready(path / "trace.0.et" if path == chakra else path, "what was recorded")
        loaded = load(files[0]) if len(files) == 1 else Loaded(read(files))
        if precision := loaded.store.metadata.get("precision"):
            print(f"{len(loaded.store):,} rows: {precision}")
        for words in json.loads(loaded.store.metadata.get("findings", "[]")):
            print(words)
        if html:
            loaded.to_html(html)
        if save:
            loaded.store.save(save)
        if perfetto:
            loaded.store.to_perfetto(perfetto)
        if chakra:
            loaded.store.to_chakra(chakra)
        for path in written:
            print(f"wrote {path}")
        if not written:
            _serve(loaded, files[0], port, browser)
    except (WorkbenchError, OSError) as error:
        fail(error)


def _serve(run: Any, path: Path, port: int, browser: bool) -> None:
    if not find_spec("panel"):
        fail(NO_USER_INTERFACE)
    from workbench.interface.app.watch_page import serve_run

    _show_later(port, browser)
    title = run.store.metadata.get("title") or path.name
    serve_run(run, port, title=title, words=str(path.absolute()), ready=f"{path.name} at")


def _show_later(port: int, browser: bool) -> None:
    """Open the page in a browser once it is served."""
    if browser and has_screen():
        import threading
        import webbrowser

        address = f"http://127.0.0.1:{port}/watch"
        threading.Timer(1.0, webbrowser.open, [address]).start()
