"""The laws of training under torchrun and mpiexec, as under "local": the same losses to the bit, a
killed rank named, no process left, however the run, its driver or an agent ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.live import over_in_the_end
from tests.processes import ROOT, command
from workbench.common.errors import PeerLost, SpecError, WorkbenchError
from workbench.launchers import mpiexec
from workbench.launchers.processes import needs

SMALL: dict[str, Any] = {"task": "mlp_layers", "iterations": 4, "batch_size": 12, "seed": 5}
LAWS: dict[str, dict[str, Any]] = {
    "data parallel": {"ranks": 2},
    "parameter server": {"strategy": "parameter_server", "ranks": 3, "dtype": "float64"},
    # not cut by measured times, since what is sent at a cut depends on where it is
    "pipeline": {
        "strategy": "pipeline",
        "ranks": 2,
        "options": {"microbatches": 3, "split": "layers"},
    },
}
# Each rank imports torch by itself, for some 3 s of a core: `make test` has each launcher once
# (mpiexec below, where ranks print), `make test-all` each law under one of them, and
# `make test-launchers` all, and what is killed.
CLUSTER = pytest.mark.cluster
EVERYWHERE = [
    ("torchrun", "pipeline"),
    pytest.param("torchrun", "data parallel", marks=pytest.mark.full),
    pytest.param("mpiexec", "parameter server", marks=pytest.mark.full),
    pytest.param("torchrun", "parameter server", marks=CLUSTER),
    pytest.param("mpiexec", "pipeline", marks=CLUSTER),
]
EVER = 1_000_000  # iterations of a run that is ended
BIN = Path(sys.executable).parent


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the environment of every process has that is started from now on."""
    token = f"WORKBENCH_OF_A_TEST={os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv(*token.split("="))
    return token


def left_over(mark: str) -> list[str]:
    """Return the processes that have the mark in the environment that they began with."""
    commands = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes():
                commands.append((place / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return commands


def wait_for(what: Callable[[], Any], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.parametrize(("launcher", "law"), EVERYWHERE)
def test_losses_are_those_of_local_ranks(
    launcher: str, law: str, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    exp = wb.Experiment(**SMALL | LAWS[law])
    with over_in_the_end(wb.run(exp.replace(launcher=launcher))) as run:
        result = run.wait(300)
    assert not left_over(mark), "the ranks, their agents and the launcher have ended"
    assert not [*tmp_path.glob("torchelastic*")], "nor is a folder of theirs left"
    here = wb.run(exp).wait(120)
    assert result.losses == here.losses, "to the bit"
    assert result.bytes_sent == here.bytes_sent and run.dropped == 0
    kinds = {"forward", "backward", "send", "recv"}
    assert kinds <= {*run.events["kind"].unique().to_list()}
    launch = json.loads(run.store.metadata["launch"])
    assert launcher in launch["command"] or "torch.distributed.run" in launch["command"]
    assert [*launch["ranks"]] == [str(rank) for rank in range(exp.ranks)]
    assert all(one["cores"] and one["threads"] for one in launch["ranks"].values())


@pytest.mark.cluster
@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_a_killed_rank_is_named_and_nothing_is_left(launcher: str, mark: str) -> None:
    run = wb.run(wb.Experiment(**SMALL | {"ranks": 2, "iterations": EVER, "launcher": launcher}))
    wait_for(lambda: run.iteration > 2 or run.done)
    run.kill(1)
    result = run.wait(120, check=False)
    assert isinstance(result.error, PeerLost) and "rank 1" in str(result.error)
    assert "SIGKILL" in str(result.error)
    assert not left_over(mark)


@pytest.mark.cluster
def test_a_killed_agent_ends_its_rank_which_is_named(mark: str) -> None:
    run = wb.run(wb.Experiment(**SMALL | {"ranks": 2, "iterations": EVER, "launcher": "mpiexec"}))
    wait_for(lambda: run.iteration > 2 or run.done)
    os.kill(parent_of(run.pids[1]), signal.SIGKILL)
    result = run.wait(120, check=False)
    assert result.error is not None and "rank 1" in str(result.error)
    assert not left_over(mark)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.cluster
def test_a_killed_mpiexec_is_the_reason(mark: str) -> None:
    run = wb.run(wb.Experiment(**SMALL | {"ranks": 2, "iterations": EVER, "launcher": "mpiexec"}))
    wait_for(lambda: run.iteration > 2 or run.done)
    pid = parent_of(run.pids[0])
    while "mpiexec" not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = parent_of(pid)
    os.kill(pid, signal.SIGKILL)
    result = run.wait(120, check=False)
    assert "mpiexec was killed by SIGKILL" in str(result.error)
    assert not left_over(mark)


DRIVER = """
import time
import workbench as wb
run = wb.run(wb.Experiment(task="mlp_layers", ranks=2, iterations=1_000_000, launcher={launcher!r}))
while run.iteration < 3:
    time.sleep(0.02)
print("runs", flush=True)
time.sleep(600)
"""


@pytest.mark.cluster
@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_a_killed_driver_leaves_nothing(launcher: str, mark: str) -> None:
    words = [sys.executable, "-c", DRIVER.format(launcher=launcher)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == "runs\n"
        driver.kill()
    wait_for(lambda: not left_over(mark), 20)


PRINTS = '''
"""Ranks that print."""

import sys

from workbench.strategies.data_parallel import Config
from workbench.strategies.data_parallel import train as average

def train(job, config: Config):
    print(f"rank {job.rank} of {job.ranks} prints")
    print(f"rank {job.rank} complains", file=sys.stderr)
    average(job, config)
'''


def test_what_ranks_print_arrives_and_losses_are_those_of_local_ranks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prints.py").write_text(PRINTS)
    exp = wb.Experiment(
        **SMALL | {"strategy": f"{tmp_path}/prints.py:train", "ranks": 2, "launcher": "mpiexec"},
        launcher_options={"bind_to": "core"},
    )
    run = wb.run(exp)
    result = run.wait(120)
    printed = capfd.readouterr()
    for rank in range(2):
        assert f"rank {rank} of 2 prints\n" in printed.out
        assert f"rank {rank} complains\n" in printed.err
    assert result.losses == wb.run(wb.Experiment(**SMALL | LAWS["data parallel"])).wait(120).losses
    launch = json.loads(run.store.metadata["launch"])
    assert "-bind-to core" in launch["command"] or "--bind-to core" in launch["command"]
    cores = len(os.sched_getaffinity(0))
    assert all(len(one["cores"]) < max(cores, 2) for one in launch["ranks"].values())


BARE = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("workbench")
x = torch.tensor([float(dist.get_rank())])
dist.all_reduce(x)
words = [dist.get_rank(), dist.get_world_size(), x.item()]
words += [os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]]
os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece
dist.destroy_process_group()
"""


def test_a_script_that_mpiexec_starts_needs_nothing_else(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(BARE)
    mpiexec = str(BIN / "mpiexec")
    done = command([mpiexec, "-n", "2", sys.executable, str(script)])
    assert sorted(done.stdout.split("\n"))[1:] == [f"{n} 2 1.0 {n} 2" for n in range(2)], done


@pytest.mark.full
def test_ranks_of_several_hosts_are_told_by_mpi_where_they_meet(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(BARE)
    hosts = ["-launcher", "fork", "-hosts", "ha:2,hb:2"]
    words = [str(BIN / "mpiexec"), *hosts, "-n", "4", sys.executable, str(script)]
    done = command(words)
    assert sorted(done.stdout.split("\n"))[1:] == [f"{n} 4 6.0 {n % 2} 2" for n in range(4)], done


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"launcher": "mpiexc"}, r"did you mean 'mpiexec'"),
        ({"launcher_options": {"bind_to": "core"}}, r"'local' takes none"),
        (
            {"launcher": "mpiexec", "launcher_options": {"bindto": "core"}},
            r"launcher_options.*no option 'bindto' \(did you mean 'bind_to'\?\)",
        ),
        (
            {"launcher": "mpiexec", "launcher_options": {"bind_to": "cores"}},
            r"launcher_options\.bind_to.*'core'",
        ),
        (
            {"launcher": "torchrun", "launcher_options": {"hosts": ["a", "b"]}, "ranks": 4},
            r"launcher_options\.address.*name an address of this machine",
        ),
        (
            {
                "launcher": "torchrun",
                "launcher_options": {"hosts": ["a", "b"], "address": "10.0.0.5"},
                "ranks": 3,
            },
            r"2 hosts get an equal number of ranks each, and 3 does not divide by 2",
        ),
        (
            {
                "launcher": "mpiexec",
                "launcher_options": {"hosts": ["-x"], "address": "10.0.0.5"},
            },
            r"launcher_options\.hosts.*is not the name of a host",
        ),
        (
            {
                "launcher": "torchrun",
                "launcher_options": {
                    "hosts": ["a", "b"],
                    "address": "127.0.0.1",
                    "remote": "no_such_shell -q",
                },
                "ranks": 2,
            },
            r"torchrun needs the program no_such_shell",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    fields: dict[str, Any], words: str, mark: str
) -> None:
    with pytest.raises(SpecError, match=words):
        wb.run(wb.Experiment(**SMALL | {"ranks": 2} | fields))
    assert not left_over(mark)


def test_hosts_that_are_not_reached_are_named_before_anything_starts(
    tmp_path: Path, mark: str
) -> None:
    options = {"remote": remote_shell(tmp_path), "hosts": ["here", "bare", "far"]}
    with pytest.raises(
        SpecError, match=r"on bare: there is no /usr/bin/python; far: connect .* No"
    ):
        wb.run(on_hosts("torchrun", **options))
    assert not left_over(mark)


def test_hosts_that_mpiexec_does_not_reach_are_named_before_anything_starts(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_LAUNCHER", "ssh")
    monkeypatch.setenv("HYDRA_LAUNCHER_EXEC", remote_shell(tmp_path))
    with pytest.raises(
        SpecError, match=r"started on far: connect .*`.*mpiexec -n 1 -hosts HOST:1 true`"
    ):
        wb.run(on_hosts("mpiexec", hosts=["here", "far"]))
    assert not left_over(mark)


@pytest.mark.parametrize("launcher", ["torchrun", "mpiexec"])
def test_a_ctrl_c_while_hosts_are_asked_ends_the_remote_shells(
    launcher: str, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = remote_shell(tmp_path)
    monkeypatch.setenv("HYDRA_LAUNCHER", "ssh")
    monkeypatch.setenv("HYDRA_LAUNCHER_EXEC", remote)
    options = {"remote": remote} if launcher == "torchrun" else {}

    def interrupt() -> None:
        wait_for(lambda: any("sleep" in one for one in left_over(mark)))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    user = threading.Thread(target=interrupt)
    user.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wb.run(on_hosts(launcher, **options, hosts=["here", "slow"]))
    user.join()
    assert time.monotonic() - begin < needs.ANSWER_S
    wait_for(lambda: not left_over(mark), 10.0)


def remote_shell(folder: Path) -> str:
    """Write a remote shell that reaches one host, lacks a Python on the next, not the others."""
    shell = folder / "remote"
    shell.write_text(
        "#!/bin/sh\n"
        "[ $1 = -x ] && shift\n"  # as mpiexec calls it
        "case $1 in\n"
        'here) shift; exec sh -c "$*";;\n'
        "bare) echo there is no /usr/bin/python;;\n"
        'far) echo "connect to host far port 22: No route to host" >&2; exit 255;;\n'
        "slow) sleep 600;;\n"
        "esac\n"
    )
    shell.chmod(0o755)
    return str(shell)


def on_hosts(launcher: str, **options: Any) -> wb.Experiment:
    """Return an experiment of a rank per host."""
    options["address"] = "127.0.0.1"
    return wb.Experiment(
        **SMALL | {"ranks": len(options["hosts"])}, launcher=launcher, launcher_options=options
    )


def test_a_launcher_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "program", lambda name: None)
    with pytest.raises(SpecError, match=r"needs the program mpiexec.*pip install"):
        wb.run(wb.Experiment(**SMALL | {"ranks": 2, "launcher": "mpiexec"}))


def test_a_launcher_that_ends_at_once_is_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    fails = tmp_path / "mpiexec"
    says = "[ $1 = --version ] && echo HYDRA && exit"
    fails.write_text(f"#!/bin/sh\n{says}\necho no slots\nexit 3\n")
    fails.chmod(0o755)
    monkeypatch.setattr(mpiexec, "need_program", lambda *_: str(fails))
    with pytest.raises(WorkbenchError, match=r"0 of 2 ranks.*mpiexec exited with code 3: no slots"):
        wb.run(wb.Experiment(**SMALL | {"ranks": 2, "launcher": "mpiexec"}))
    assert not left_over(mark)


def test_the_command_line_names_a_launcher_and_shows_its_command(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    wb.Experiment(**SMALL | {"ranks": 2}).to_yaml(spec)
    words = [str(BIN / "workbench"), "run", str(spec), "--launcher", "mpiexec"]
    done = command([*words, "--launcher-options", "bind_to: core", "--dry-run"])
    assert done.returncode == 0 and "mpiexec -n 2 " in done.stdout, done
    assert "-bind-to core" in done.stdout and "launchers.processes.agent" in done.stdout
    done = command([*words, "--launcher-options", "bind_to: [core"])
    assert done.returncode == 1 and done.stderr.startswith("error: this is not YAML"), done
