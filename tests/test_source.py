"""Code that travels: what is captured means the same elsewhere; the rest is refused by name."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import source
from workbench.errors import SpecError
from workbench.source import Source, capture, load, load_path

ROOT = Path(__file__).resolve().parents[1]
Module = Callable[..., ModuleType]


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Module]:
    """Write a file of the user's own and import it, as a script's neighbour is imported."""
    made: list[str] = []

    def make(text: str, name: str = "users_own") -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec and spec.loader
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        made.append(name)
        spec.loader.exec_module(loaded)
        return loaded

    yield make
    for name in made:
        sys.modules.pop(name, None)


def python(*arguments: str, cwd: Path) -> str:
    """Run Python there, with the package on its path but not in PYTHONPATH's own folder."""
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# What travels


def test_a_function_brings_functions_imports_and_constants_along(module: Module) -> None:
    own = module("""
        import math
        import numpy as np
        from collections import OrderedDict as Ordered
        from os.path import join

        SCALE, UNUSED = 2.5, 3
        TABLE = {"a": [1, (2,), {3}], "b": (float("inf"), None, b"x", True, -0.0, 1j)}

        def inner(x):
            return [SCALE * y for y in x]

        def outer(x):
            table = Ordered(TABLE)
            return sum(map(lambda y: y + math.pi, inner(np.asarray(x)))), table, join("a", "b")
    """)
    travelling = capture(own.outer)
    assert "UNUSED" not in travelling.code and "import numpy as np" in travelling.code
    moved = travelling.load()
    assert moved is not own.outer and moved([1, 2]) == own.outer([1, 2])


def test_a_class_brings_bases_decorators_defaults_and_annotations_along(module: Module) -> None:
    own = module('''
        import functools
        from dataclasses import dataclass, field
        from enum import Enum

        import torch
        from torch import nn

        WIDTH = 3
        Shape = tuple[int, int]

        class Mode(Enum):
            ON = 1

        def logged(function):
            @functools.wraps(function)
            def inner(*args):
                return label(), function(*args)
            return inner

        def label():
            return "logged"

        @dataclass(frozen=True)
        class Settings:
            width: int = WIDTH
            names: list[str] = field(default_factory=lambda: [label()])
            shape: Shape = (1, 2)

        class Base(nn.Module):
            def forward(self, x):
                return x

        @functools.lru_cache
        def ones(n):
            return torch.ones(n)

        class Mine(Base):
            """Its doc string."""

            settings = Settings()

            @logged
            @torch.no_grad()
            def forward(self, x, mode: Mode = Mode.ON):
                return super().forward(x) * ones(self.settings.width)

            @property
            def label(self) -> Shape:
                return self.settings.shape
    ''')
    moved = capture(own.Mine).load()
    word, tensor = moved().forward(2)
    assert word == "logged" and tensor.tolist() == [2.0, 2.0, 2.0]
    assert moved().label == (1, 2) and moved.__doc__ == "Its doc string."
    assert moved.__mro__[1].__name__ == "Base" and moved.__mro__[1] is not own.Base
    assert inspect.signature(moved.forward) is not None


def test_functions_that_call_each_other_and_bases_that_name_their_heirs(module: Module) -> None:
    own = module("""
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)

        class Base:
            def heirs(self): return Child, Grandchild
        class Child(Base): pass
        class Grandchild(Child): pass
    """)
    assert capture(own.even).load()(10) and not capture(own.odd).load()(10)
    for one in (own.Base, own.Child, own.Grandchild):
        names = [heir.__name__ for heir in capture(one).load()().heirs()]
        assert names == ["Child", "Grandchild"]


def test_a_decorator_finds_what_it_calls_at_once(module: Module) -> None:
    own = module("""
        def register(cls):
            cls.table = later()
            return cls
        def later(): return LATEST
        LATEST = 7

        @register
        class A: pass
    """)
    assert capture(own.A).load().table == 7


def test_variables_of_enclosing_functions_travel_when_plain(module: Module) -> None:
    own = module("""
        def make(scale, handle):
            def helper(x): return x * scale
            def plain(x): return helper(x) + 1
            def stuck(x): return handle
            class Local:
                text = '''two
        lines'''
                def get(self): return helper(2)
            return plain, stuck, Local
    """)
    plain, stuck, local = own.make(3, object())
    assert capture(plain).load()(2) == 7
    assert capture(local).load()().get() == 6
    assert capture(local).load().text == local.text  # taking the indentation off changes no string
    with pytest.raises(SpecError, match="stuck uses handle, a object"):
        capture(stuck)


def test_modules_of_the_users_own_travel_too(module: Module) -> None:
    module("FACTOR = 4\ndef scaled(x): return FACTOR * x\nclass Unused: pass\n", "users_helpers")
    own = module("""
        import users_helpers
        import users_helpers as h
        from users_helpers import scaled as times_four

        def direct(x): return times_four(x)
        def through(x): return users_helpers.scaled(x) + h.FACTOR
        def whole(): return users_helpers
        def inside(x):
            import users_helpers
            return users_helpers.scaled(x)
    """)
    assert capture(own.direct).load()(2) == 8
    code = capture(own.through).code
    assert "Unused" not in code and "import users_helpers" not in code
    assert capture(own.through).load()(2) == 12
    with pytest.raises(SpecError, match=r"whole uses the module users_helpers.*from users_helpers"):
        capture(own.whole)
    with pytest.raises(SpecError, match=r"inside imports users_helpers.*outside of inside"):
        capture(own.inside)


def test_library_objects_travel_as_imports(module: Module) -> None:
    own = module("""
        import concurrent.futures
        import torch
        import torch.nn.functional as F
        from torch import float32 as DTYPE, relu
        from torch.utils.data import TensorDataset
        from typing import Any, Optional
        from workbench.errors import SpecError as Wrong

        ACTIVATIONS = {"relu": relu, "tanh": torch.tanh, "gelu": F.gelu}

        def use(x: Optional[int] = None) -> Any:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                done = pool.submit(torch.zeros, 2, dtype=DTYPE).result()
            return TensorDataset(ACTIVATIONS["relu"](done)), Wrong
    """)
    code = capture(own.use).code
    assert "import concurrent.futures\n" in code  # `import concurrent` alone would not do
    assert "from workbench.errors import SpecError as Wrong\n" in code
    dataset, wrong = capture(own.use).load()()
    assert type(dataset).__name__ == "TensorDataset" and wrong is SpecError
    from workbench.tasks.lenet_digits import Task

    assert capture(Task).load() is Task


def test_annotations_that_nobody_evaluates_need_not_travel(module: Module) -> None:
    own = module("""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from nowhere import Nothing
        HANDLE = object()
        def function(x: Nothing, y: HANDLE = 1) -> "Nothing":
            z: Nothing = y
            return z
    """)
    assert capture(own.function).load()(0) == 1


constants: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
        | st.frozensets(st.integers() | st.text(), max_size=3)
        | st.sets(st.integers() | st.text(), max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(constants)
def test_plain_constants_arrive_equal(value: Any) -> None:
    def give() -> Any:
        return value

    moved = capture(give).load()()
    assert moved == value and repr(type(moved)) == repr(type(value))


# What is refused, by name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "import torch\nDATA = torch.ones(3)\ndef f(): return DATA",
            r"f uses DATA, a torch\.Tensor",
        ),
        ("FILE = open(__file__)\ndef f(): return FILE", r"f uses FILE, a _io\.TextIOWrapper"),
        ("class C: pass\nITEM = C()\ndef f(): return ITEM", r"f uses ITEM, a users_own\.C"),
        ("LIST = [1, [object()]]\ndef f(): return LIST", "f uses LIST, a object"),
        ("def g(): return MISSING\ndef f(): return g()", "g uses MISSING, which is not defined"),
        ("f = lambda: 0", "lambda"),
        ("twice = lambda x: x\ndef f(): return twice(1)", "lambda: write it with def"),
        ("import functools\nf = functools.partial(print, 1)", "partial"),
        ("class C:\n    def f(self): ...\nf = C().f", "method"),
        ("class C:\n    class D: ...\nf = C.D", r"C\.D is defined inside of a class"),
        ("from collections import namedtuple\nf = namedtuple('f', 'x')", "source of f"),
        ("exec('def f(): ...')", "source of f"),
        (
            "import functools\ndef g(): ...\nf = functools.lru_cache(g)",
            "wrapped outside of its definition",
        ),
        ("BIG = 'x' * 200_000\ndef f(): return BIG", "BIG, a constant of 200,0"),
        (
            "def a():\n    K = 1\n    def f(): return K\n    return f\nK = 2\ng = a()\n"
            "def f(): return g(), K",
            "which already stands for another",
        ),
    ],
)
def test_what_cannot_travel_is_refused_by_name(module: Module, text: str, says: str) -> None:
    own = module(text)
    with pytest.raises(SpecError, match=says):
        capture(own.f)


@pytest.mark.parametrize("value", [3, "text", None, object(), [print]])
def test_only_functions_and_classes_are_captured(value: object) -> None:
    with pytest.raises(SpecError, match="only a function or a class"):
        capture(value)


# Where a user's code is typed

SCRIPT = """
import sys
sys.path.append({root!r})
from workbench.spec import Experiment
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


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("BY = 1\ndef shifted(n):\n    return n + BY\n")
    (tmp_path / "script.py").write_text(SCRIPT.format(root=str(ROOT)))
    (tmp_path / "spec.json").write_text(python("script.py", cwd=tmp_path))
    (tmp_path / "away").mkdir()
    load_it = f"""if True:
        import sys; sys.path.append({str(ROOT)!r})
        from workbench.spec import Experiment
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

cell("import torch\\nfrom dataclasses import dataclass\\nfrom workbench.source import capture")
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
cell("from workbench.spec import Experiment\\nprint(Experiment(task=first).carries_code)")
"""


def test_cells_of_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(NOTEBOOK.format(root=str(ROOT)))
    ran = python("notebook.py", cwd=tmp_path)
    assert ran.splitlines() == ["10", "15", "new Empty", "('task',)"]


def test_a_dataclass_object_as_task_gives_its_options(module: Module) -> None:
    from workbench.spec import Experiment

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
    monkeypatch.setattr(source, "FOLDERS", tmp_path.parent)
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
        "Plain": [], "Init": ["a", "b", "c"], "Heir": ["a", "b", "c"], "Any": None,
        "Foreign": None, "Data": ["x"], "More": ["x", "z"], "Absent": None,
    }  # fmt: skip
    assert {name: source.keywords(code, name, "it") for name in expected} == expected
