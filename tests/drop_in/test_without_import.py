"""Programs that never say ``import workbench``: the entry point, and the switch that stands in for
Gloo.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.pairwise import first
from tests.processes import ROOT, command

AGAIN = "install it again: pip install -e ."

FIRST = """
import os, sys, time
assert sys.path[0] == os.getcwd(), "where a user's own workbench.py lies"
began = time.thread_time()
import torch, torch.distributed as dist
torchs = time.thread_time() - began
assert not [name for name in sys.modules if name.split(".")[0] == "workbench"], "torch alone"
sys.path = [place for place in sys.path if place != os.getcwd()]
assert dist.is_backend_available("workbench")
assert dist.Backend.default_device_backend_map["cpu"] == "gloo", "only where it is asked for"

from importlib.metadata import entry_points
(entry,) = [one for one in entry_points(group="torch.backends") if one.name == "workbench"]
costs = []
for _ in range(20):
    sys.modules.pop("_workbench_autoload")
    dist.Backend._plugins.pop("WORKBENCH")
    began = time.thread_time()
    entry.load()()
    costs.append(time.thread_time() - began)
print(f"autoload: {1e3 * min(costs):.3f} ms")
assert min(costs) < torchs / 300, (costs, torchs)

assert "workbench" not in sys.modules
dist.init_process_group("workbench", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
assert dist.get_backend() == "workbench" and "workbench" in sys.modules
import workbench
assert workbench.__file__.endswith("__init__.py")
"""

INSTEAD = """
import torch, torch.distributed as dist
from torch.distributed import init_process_group, new_group
def begin(*words, **more):
    init_process_group(*words, store=dist.HashStore(), rank=0, world_size=1, **more)
    x = torch.ones(3)
    dist.all_reduce(x)
    found = [type(dist.group.WORLD).__name__, dist.get_backend()]
    for group in (new_group([0], None, "GLOO"), new_group([0], backend="gloo"), new_group([0])):
        found.append(type(group).__name__)
    dist.destroy_process_group()
    return found
all_ours = 3 * ["WorkbenchGroup"]
assert begin("gloo") == begin(backend="gloo") == ["WorkbenchGroup", "workbench", *all_ours]
assert begin()[0] == "WorkbenchGroup"
assert begin(backend=None)[0] == "WorkbenchGroup"
import os
os.environ |= dict(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
assert type(mesh.get_group("tp")).__name__ == "WorkbenchGroup"
dist.destroy_process_group()
import torch.testing._internal.distributed.fake_pg  # makes that one known
init_process_group("fake", store=dist.HashStore(), rank=0, world_size=1)
assert dist.get_backend() == "fake", "what names another backend has it"
dist.destroy_process_group()
"""


def test_it_is_installed_beside_the_package() -> None:
    backends = [one for one in entry_points(group="torch.backends") if one.name == "workbench"]
    assert [one.value for one in backends] == ["_workbench_autoload:autoload"], AGAIN
    source = Path(ROOT, "workbench", "_autoload.py").read_text()
    installed = sys.modules["_workbench_autoload"].__file__ if _loaded() else None
    assert installed and Path(installed).read_text() == source, AGAIN


def _loaded() -> bool:
    import torch  # noqa: F401 (loads it)

    return "_workbench_autoload" in sys.modules


def test_torch_alone_knows_the_backend_and_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "workbench.py").write_text("raise SystemExit('this is not the package')")
    (tmp_path / "program.py").write_text(FIRST)
    ended = command(["sh", "-c", f"cd {tmp_path} && exec {sys.executable} program.py"], 120.0)
    assert ended.returncode == 0, ended.stderr[-4000:]
    print(ended.stdout)


@pytest.mark.full
def test_the_switch_stands_in_for_gloo(tmp_path: Path) -> None:
    ended = command([sys.executable, "-c", INSTEAD], 120.0, WORKBENCH_DEFAULT="1")
    assert ended.returncode == 0, ended.stderr[-4000:]


def test_it_never_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch.distributed as dist

    from workbench import _autoload

    monkeypatch.setattr(dist, "Backend", None)
    _autoload.autoload()
    assert "not a backend here: AttributeError" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(dist.Backend, "_plugins", {})
    monkeypatch.setenv("WORKBENCH_DEFAULT", "yes")
    _autoload.autoload()
    assert "WORKBENCH_DEFAULT='yes' is ignored: it takes 1, or 0" in capsys.readouterr().err
    assert dist.Backend.default_device_backend_map["cpu"] == "gloo"


HIDDEN = """
import torch, torch.distributed as dist
try:
    dist.init_process_group("workbench", store=dist.HashStore(), rank=0, world_size=1)
except ModuleNotFoundError as error:
    print(error)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
print("trains")
"""


@pytest.mark.full
@pytest.mark.parametrize("name", first(1, ["workbench/__init__.py", "workbench.py"]))
def test_a_file_that_hides_the_package_is_named(tmp_path: Path, name: str) -> None:
    hiding = tmp_path / name
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("")
    (tmp_path / "program.py").write_text(HIDDEN)
    line = ["sh", "-c", f"cd {tmp_path} && exec {sys.executable} program.py"]
    ended = command(line, 120.0, WORKBENCH_ATTACH="1", PYTHONPATH=f"{tmp_path}")
    words = f"{hiding} hides the workbench: "
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.startswith(words) and ended.stdout.endswith("trains\n"), ended.stdout
    assert f"not attached: {words}" in ended.stderr
