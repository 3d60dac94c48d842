"""Code where it arrives: from scripts, from cells, by name or by path; loaded afresh each time."""

from __future__ import annotations

import linecache
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from workbench.common import extensions
from workbench.common.errors import SpecError
from workbench.user_code import source
from workbench.user_code.source import Source, capture, load, load_path

ROOT = Path(__file__).resolve().parents[2]
Module = Callable[..., ModuleType]


def python(*arguments: str, cwd: Path) -> str:
    """Run Python there, with the package on its path but not in PYTHONPATH's own folder."""
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# Where a user's code is typed

SCRIPT = """
import sys
sys.path.append({root!r})
from workbench.experiment.spec import Experiment
from helpers import shifted
import torch

SHIFT = 3

class MyTask:
    size: int = SHIFT
    def model(self):
        return torch.nn.Linear(shifted(self.size), 1)

class Plain:
    size = SHIFT

@torch.no_grad()
def all_reduce(comm, x, op=None):
    return x * SHIFT

exp = Experiment(task=MyTask, all_reduce=all_reduce)
print(exp.to_json())
assert Experiment.from_yaml(exp.to_yaml(), allow_code=True) == exp
assert Experiment(task=Plain).task.load().size == 3
"""


@pytest.mark.full
def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("BY = 1\ndef shifted(n):\n    return n + BY\n")
    (tmp_path / "script.py").write_text(SCRIPT.format(root=str(ROOT)))
    (tmp_path / "spec.json").write_text(python("script.py", cwd=tmp_path))
    (tmp_path / "away").mkdir()
    load_it = f"""if True:
        import sys; sys.path.append({str(ROOT)!r})
        from workbench.experiment.spec import Experiment
        exp = Experiment.from_json(open({str(tmp_path / "spec.json")!r}).read())
        assert "__main__" in sys.modules and "helpers" not in sys.modules
        print(exp.task.load()().model().in_features, exp.all_reduce.load()(None, 5))
    """
    assert python("-c", load_it, cwd=tmp_path / "away").split() == ["4", "15"]


NOTEBOOK = """
import sys
sys.path.append({root!r})
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()

def cell(text):
    ran = shell.run_cell(text)
    ran.raise_error()

cell(
            "import torch\\nfrom dataclasses import dataclass\\n"
            "from workbench.user_code.source import capture"
        )
cell("RATE = 2")
cell("def double(x):\\n    return RATE * x")
cell("@dataclass\\nclass Settings:\\n    width: int = 1")         # no method of its own: no file
cell("@dataclass\\nclass Settings:\\n    width: int = 5\\n    depth: int = 2")
cell("class Empty: pass")
cell('''class MyTask:
    settings = Settings()
    def model(self):
        return torch.nn.Linear(double(self.settings.width), 1)
''')
cell("print(capture(MyTask).load()().model().in_features)")
cell("RATE = 3")                                                  # live: the value of now
cell("first = MyTask\\nclass MyTask:\\n    def model(self): return 'new'")
cell("print(capture(first).load()().model().in_features)")
cell("print(capture(MyTask).load()().model(), capture(Empty).load().__name__)")
cell(
            "from workbench.experiment.spec import Experiment\\n"
            "print(Experiment(task=first).carries_code)"
        )
"""


@pytest.mark.full
def test_cells_of_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(NOTEBOOK.format(root=str(ROOT)))
    ran = python("notebook.py", cwd=tmp_path)
    assert ran.splitlines() == ["10", "15", "new Empty", "('task',)"]


def test_a_dataclass_object_as_task_gives_its_options(module: Module) -> None:
    from workbench.experiment.spec import Experiment

    own = module("""
        from dataclasses import dataclass
        @dataclass
        class Sized:
            size: int = 1
            name: str = "x"
        class Stateful:
            def __init__(self): self.n = 1
        class Stateless: pass
    """)
    exp = Experiment(task=own.Sized(size=4))
    assert exp.task_options == {"size": 4, "name": "x"} and isinstance(exp.task, Source)
    assert exp.task.load()(**exp.task_options).size == 4
    assert isinstance(Experiment(task=own.Stateless()).task, Source)
    with pytest.raises(SpecError, match=r"state \(n\) does not travel.*task=Stateful"):
        Experiment(task=own.Stateful())
    with pytest.raises(SpecError, match=r"no option 'sise'.*did you mean 'size'"):
        Experiment(task=own.Sized, task_options={"sise": 2})


# Loading


def test_a_traceback_shows_the_users_lines() -> None:
    fails = Source(name="f", code="def f():\n    return 1 / 0  # here\n").load()
    with pytest.raises(ZeroDivisionError) as raised:
        fails()
    assert "return 1 / 0  # here" in "".join(traceback.format_exception(raised.value))


def test_each_load_is_fresh_and_can_be_captured_again() -> None:
    kept = Source(name="f", code="SEEN = []\n\n\ndef f():\n    return SEEN\n")
    one, other = kept.load(), kept.load()
    one().append(1)
    assert other() == [] and one.__module__ in sys.modules
    assert capture(other) == kept


def test_code_that_fails_leaves_no_module() -> None:
    before = set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        Source(name="f", code="1 / 0").load()
    assert not [name for name in set(sys.modules) - before if name.startswith("workbench_source")]
    with pytest.raises(SpecError, match=r"defines no g \(did you mean 'gg'"):
        Source(name="g", code="gg = 1").load()


def test_names_paths_and_sources_are_loaded_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_it.py").write_text("VALUE = 5\n")
    (tmp_path / "mine.py").write_text(
        "from beside_it import VALUE\ndef all_reduce(): return VALUE\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load("collectives", "ring", "all_reduce", "all_reduce_").__name__ == "all_reduce"
    assert load("collectives", "mine.py:all_reduce", "all_reduce", "all_reduce_")() == 5
    own = Source(name="f", code="def f(): return 6\n")
    assert load("collectives", own, "all_reduce", "all_reduce_")() == 6
    assert load_path("mine.py:VALUE") == 5
    for wrong, says in (
        ("rign", r"no 'rign' \(did you mean 'ring'"),
        ("mine.py:all_redcue", r"no all_redcue \(did you mean 'all_reduce'"),
        ("none.py:f", "no file"),
    ):
        with pytest.raises(SpecError, match=says):
            load("collectives", wrong, "all_reduce", "all_reduce_")
    with pytest.raises(SpecError, match=r"my_task\.py:MyTask"):
        load_path("mine.py")
    sys.modules.pop("beside_it", None)


def test_available_lists_the_files_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"ring", "naive", "one_shot"} <= set(source.available("collectives", "all_reduce_"))
    for name in ("__init__.py", "_private.py", "b.py", "a.py", "notes.txt"):
        (tmp_path / name).touch()
    monkeypatch.setattr(extensions, "OURS", tmp_path.parent)
    assert source.available(tmp_path.name) == ["a", "b"]
    assert source.available("missing") == []


def test_keywords_are_read_and_not_run() -> None:
    code = textwrap.dedent("""
        raise RuntimeError
        class Plain: ...
        class Init:
            def __init__(self, a, /, b=1, *, c): ...
        class Heir(Init): ...
        class Any:
            def __init__(self, **any): ...
        class Foreign(torch.nn.Module): ...
        @dataclasses.dataclass(frozen=True)
        class Data:
            x: int
            y: ClassVar[int] = 1
        @dataclass
        class More(Data):
            z: int = 2
    """)
    expected = {
        "Plain": (),
        "Init": ("a", "b", "c"),
        "Heir": ("a", "b", "c"),
        "Any": None,
        "Foreign": None,
        "Data": ("x",),
        "More": ("x", "z"),
        "Absent": None,
    }
    assert {name: source.keywords(code, name, "it") for name in expected} == expected


def test_loading_again_and_again_leaves_no_more_than_once(tmp_path: Path) -> None:
    file = tmp_path / "mine_again.py"
    file.write_text("class Mine:\n    def value(self):\n        return 1\n")
    one = Source(name="f", code="def f():\n    return 2\n")
    places = [lambda: load_path(f"{file}:Mine")().value(), lambda: one.load()()]
    first = [place() for place in places]
    before = len(sys.modules), len(sys.path), len(linecache.cache)
    assert [[place() for place in places] for _ in range(20)] == [first] * 20 == [[1, 2]] * 20
    assert (len(sys.modules), len(sys.path), len(linecache.cache)) == before
    file.write_text("class Mine:\n    def value(self):\n        return 'edited'\n")
    assert places[0]() == "edited" and len(sys.modules) == before[0]
    file.write_text("raise ValueError(5)")
    with pytest.raises(ValueError, match="5"):
        places[0]()
    assert len(sys.modules) == before[0]
