"""The command line, as a shell sees it: what it prints, what it leaves, how it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import workbench as wb
from tests.live import PATIENCE, over_in_the_end
from tests.pairwise import first
from workbench.cli import app as cli
from workbench.presets.catalogue import named, presets

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "workbench.cli"]
SHELL = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def in_this_process(monkeypatch: pytest.MonkeyPatch, *words: str, cwd: Path) -> Result:
    """As ``workbench``, without a new process, which would import torch."""
    monkeypatch.chdir(cwd)
    return CliRunner().invoke(cli, [*words])


def workbench(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], cwd=cwd, env=SHELL, capture_output=True, text=True, timeout=100
    )


def test_a_run_is_saved_and_put_in_words(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        wb.Experiment(
            strategy="data_parallel", task="lenet_digits", ranks=2, iterations=5
        ).to_yaml()
    )
    done = workbench(
        "run", "spec.yaml", "--save", "new/a.parquet", "--html", "a.html", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"5 iterations in .+ s \([\d.]+ per second\), loss .+ MB sent by 2 ranks, 0 records",
        done.stdout,
    )
    assert "\nsaved" in done.stdout and "Traceback" not in done.stderr
    assert wb.load(tmp_path / "new/a.parquet").events.filter(kind="send").height > 0
    assert (tmp_path / "a.html").read_text().lstrip().startswith("<!")


def test_a_run_that_recovered_says_from_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = wb.Experiment(
        ranks=2, iterations=5, recovery="shrink", faults=[wb.Kill(rank=1, at_iteration=2)]
    )
    (tmp_path / "spec.yaml").write_text(experiment.to_yaml())
    done = in_this_process(monkeypatch, "run", "spec.yaml", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    assert re.search(r"\n1 recovery, goodput .+%\n  rank 1 was lost in iteration \d", done.stdout)


def test_a_spec_that_cannot_be_ends_with_status_1_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("strategy: data_paralel\ntask: lenet_digits\n")
    done = workbench("run", "bad.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "strategy" in done.stderr and "did you mean 'data_parallel'" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.full
def test_a_place_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    wb.Experiment(strategy="data_parallel", ranks=2, iterations=10**6).to_yaml(tmp_path / "a.yaml")
    (tmp_path / "file").touch()
    (tmp_path / "run.parquet").write_bytes(b"")  # it would be read first: what is said is of --html
    for words in (
        ["run", "a.yaml", "--save", "/proc/run.parquet"],
        ["run", "a.yaml", "--html", "file/run.html"],
        ["demo", "--html", "/proc/run.html"],
        ["open", "run.parquet", "--html", "/proc/run.html"],
        ["open", "run.parquet", "--chakra", "/proc/chakra"],
    ):
        done = workbench(*words, cwd=tmp_path)
        assert done.returncode and f"to {words[-1]}" in done.stderr, (words, done.stderr)
        assert "cannot write" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        (["run", "a.yaml", "--dry-run", "--save", "a.parquet"], "--save"),
        (["open", "a.yaml", "--html", "a.html", "--port", "5007"], "--port"),
        (["attach", "--no-page", "--port", "5007", "--", "true"], "--port"),
        (["stacks", "--full", "--json"], "--full"),
    ],
)
def test_an_option_without_effect_is_refused(
    words: list[str], idle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wb.Experiment(ranks=2, iterations=1).to_yaml(tmp_path / "a.yaml")
    done = in_this_process(monkeypatch, *words, cwd=tmp_path)
    assert done.exit_code == 1 and f"no {idle}" in done.stderr, done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["a.yaml"]


def test_a_task_that_fails_says_where_and_what_was_recorded_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from workbench.tasks.lenet_digits import Task as LeNet\n\n\n"
        "class Mine(LeNet):\n"
        "    def loss(self, model, batch):\n"
        "        raise ArithmeticError('on purpose')\n"
    )
    (tmp_path / "spec.yaml").write_text(
        "strategy: data_parallel\ntask: mine.py:Mine\nranks: 2\niterations: 5\n"
    )
    words = ["run", "spec.yaml", "--allow-code", "--save", "a.parquet"]
    done = in_this_process(monkeypatch, *words, cwd=tmp_path)
    assert done.exit_code == 1, done.output
    assert done.stderr.startswith("error: rank ") and "on purpose" in done.stderr
    assert (tmp_path / "a.parquet").exists()


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (["run"], 1, "name the experiment's YAML file, --preset NAME, or --resume FOLDER"),
        (["run", "--nope"], 2, "no such option: --nope"),
        (["run", "nofile.yaml"], 1, "nofile.yaml: there is no such file\n"),
        (
            ["run", "Ring of four"],
            1,
            "Ring of four: there is no such file; a preset has this name:",
        ),
        (["run", "faults.yaml"], 1, "Experiment.faults[0]: say which it is with `fault`: 'kill', "),
        (["run", "wrong.yaml"], 1, "Experiment.ranks = -3: "),
        (["run", "--preset", "A slwo link"], 1, "there is no preset 'A slwo link' (did you mean "),
        (["run", "--preset", "stragler"], 1, "there is no preset 'stragler' (did you mean "),
        (["run", "wrong.yaml", "--preset", "Two ranks"], 1, "wrong.yaml and --preset are two"),
        (["open", "wrong.yaml"], 1, "wrong.yaml: expected a Parquet file"),
        (["serve", "--port", "99999999"], 2, "invalid value for '--port': "),
        (["frobnicate"], 2, "no such command 'frobnicate'"),
        (["chaos"], 1, "name the experiment's YAML file, or --preset NAME"),
    ],
)
def test_errors_of_all_commands_look_the_same(
    words: list[str], status: int, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong.yaml").write_text("ranks: -3\n")
    (tmp_path / "faults.yaml").write_text("faults: [{kind: kill}]\n")
    done = in_this_process(monkeypatch, *words, cwd=tmp_path)
    assert done.exit_code == status and done.stderr.startswith(f"error: {error}"), done.stderr
    assert "Error:" not in done.output and "─" not in done.output and done.stdout == ""


def test_the_end_that_an_experiment_plans_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = wb.Kill(rank=1, at_iteration=2)
    wb.Experiment(ranks=2, iterations=5, faults=[plan]).to_yaml(tmp_path / "spec.yaml")
    done = in_this_process(monkeypatch, "run", "spec.yaml", cwd=tmp_path)
    assert done.exit_code == 1 and repr(plan) in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ended as planned: rank 1 ")
    assert "rror" not in done.output


@pytest.mark.full
def test_presets_are_listed_and_run_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = in_this_process(monkeypatch, "presets", cwd=tmp_path).stdout.splitlines()
    for name, preset in presets().items():
        at = next(at for at, line in enumerate(listed) if line.startswith(f"  {name} · "))
        assert f"{preset.experiment.ranks} rank" in listed[at] and preset.words in listed[at + 1]
    assert {named(one).name for one in ("a-SLOW_link", "A slow li")} == {"A slow link"}
    for unclear in ("slow link", ""):  # also of "Pipeline: slow links"; of all
        with pytest.raises(wb.SpecError, match="They are: 'Ring of four'"):
            named(unclear)
    words = ["run", "--preset", "samples dealt", "--stop-after", "0.3 s", "--save", "a.parquet"]
    done = in_this_process(monkeypatch, *words, cwd=tmp_path)
    assert done.exit_code == 0, done.output
    assert "stopped after 0.3 s, as the experiment says" in done.stdout
    metadata = wb.load(tmp_path / "a.parquet").store.metadata
    assert presets()["Samples, dealt out"].facts().items() <= metadata.items()


@pytest.mark.full
def test_chaos_takes_a_preset_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["chaos", "--preset", "more ranks than", "--seed", "1", "--runs", "1"]
    done = in_this_process(monkeypatch, *words, cwd=tmp_path)
    assert done.exit_code == 0, done.output
    assert re.search(r"^ +0 .* faults: ", done.stdout, re.MULTILINE)
    assert "1 run, 0 wrong" in done.stdout


def test_help_shows_commands_to_begin_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = in_this_process(monkeypatch, "--help", cwd=tmp_path)
    assert done.exit_code == 0 and 'workbench run --preset "A slow link"' in done.stdout


def test_the_version_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = in_this_process(monkeypatch, "--version", cwd=tmp_path)
    assert (done.exit_code, done.stdout) == (0, f"workbench {wb.__version__}\n")


@pytest.mark.full
def test_ctrl_c_ends_a_run_cleanly_and_saves_it(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        "strategy: data_parallel\ntask: lenet_digits\nranks: 2\niterations: 100000\n"
    )
    shell = subprocess.Popen(
        [*COMMAND, "run", "spec.yaml", "--save", "a.parquet"],
        cwd=tmp_path,
        env={
            **SHELL,
            "FORCE_COLOR": "1",
        },  # so that the bar is drawn, which tells when training began
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert shell.stdout
    output = b""
    while not re.search(rb"loss \d\.\d*[1-9]", output):
        more = os.read(shell.stdout.fileno(), 4096)
        assert more, output.decode()
        output += more
    shell.send_signal(signal.SIGINT)
    rest_of_output, _ = shell.communicate(timeout=120)
    assert shell.returncode == 130, rest_of_output.decode()
    assert b"stopped before its end" in rest_of_output and b"Traceback" not in rest_of_output
    assert wb.load(tmp_path / "a.parquet").events.height > 0


OLD = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def environment(locale: str, folder: Path) -> dict[str, str]:
    """Return the environment of a locale, compiled where it is not of every machine."""
    if locale == "C.UTF-8":
        return {"LC_ALL": locale}
    if locale == "C":
        return {"LC_ALL": locale, **OLD}
    place, _, letters = locale.partition(".")
    words = ["localedef", "-i", place, "-f", letters, str(folder / locale)]
    if shutil.which(words[0]) and subprocess.run(words, capture_output=True).returncode < 2:
        return {"LC_ALL": locale, "LOCPATH": str(folder), **OLD}
    return {"LC_ALL": "C", "PYTHONIOENCODING": letters, **OLD}  # Python's streams alone


IN_ANY_LOCALE = """
import sys
import workbench as wb
from workbench.cli import app
from workbench.experiment.checks import prepare

page, spec, wrong = sys.argv[1:]
prepare(wb.Experiment.from_yaml(spec))
wb.load("run.parquet").to_html(page)
app(["run", spec, "--dry-run"], standalone_mode=False)
app(["run", wrong])
"""


@pytest.mark.parametrize("locale", first(1, ["en_US.ISO-8859-1", "C", "C.UTF-8", "zh_CN.GB18030"]))
def test_files_and_output_are_right_in_every_locale(tmp_path: Path, locale: str) -> None:
    """Files are of UTF-8, and a terminal that lacks a letter is shown its number. A terminal that
    says it has no columns is written to, too.
    """
    exp = wb.Experiment(strategy="data_parallel", task="lenet_digits", ranks=2, iterations=2)
    with over_in_the_end(wb.run(exp)) as run:
        run.wait(PATIENCE)
    run.store.save(tmp_path / "run.parquet")
    (tmp_path / "ü.yaml").write_text(f"# für dich: →\n{exp.to_yaml()}", encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text("strategy: →", encoding="utf-8")
    (tmp_path / "script.py").write_text(IN_ANY_LOCALE, encoding="utf-8")
    letters = environment(locale, tmp_path)
    done = subprocess.run(
        [sys.executable, "script.py", "page.html", "ü.yaml", "wrong.yaml"],
        cwd=tmp_path,
        env={**SHELL, "COLUMNS": "0", **letters},
        capture_output=True,
        timeout=PATIENCE,
    )
    shown = (letters, done.stdout, done.stderr)
    assert b"warm pool" in done.stdout and b"strategy" in done.stderr, shown
    assert b"Traceback" not in done.stderr and done.returncode == 1, shown
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "→" in page and "â†" not in page and "鈫" not in page, letters
