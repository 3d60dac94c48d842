"""Code that travels: what is captured means the same elsewhere; the rest is refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.common.errors import SpecError
from workbench.user_code.source import capture

Module = Callable[..., ModuleType]


# What travels


def test_a_function_brings_functions_imports_and_constants_along(module: Module) -> None:
    users_module = module("""
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
    traveling = capture(users_module.outer)
    assert "UNUSED" not in traveling.code and "import numpy as np" in traveling.code
    moved = traveling.load()
    assert moved is not users_module.outer and moved([1, 2]) == users_module.outer([1, 2])


def test_a_class_brings_bases_decorators_defaults_and_annotations_along(module: Module) -> None:
    users_module = module('''
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
    moved = capture(users_module.Mine).load()
    word, tensor = moved().forward(2)
    assert word == "logged" and tensor.tolist() == [2.0, 2.0, 2.0]
    assert moved().label == (1, 2) and moved.__doc__ == "Its doc string."
    assert moved.__mro__[1].__name__ == "Base" and moved.__mro__[1] is not users_module.Base
    assert inspect.signature(moved.forward) is not None


def test_functions_that_call_each_other_and_bases_that_name_their_heirs(module: Module) -> None:
    users_module = module("""
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)

        class Base:
            def heirs(self): return Child, Grandchild
        class Child(Base): pass
        class Grandchild(Child): pass
    """)
    assert capture(users_module.even).load()(10) and not capture(users_module.odd).load()(10)
    for one in (users_module.Base, users_module.Child, users_module.Grandchild):
        names = [heir.__name__ for heir in capture(one).load()().heirs()]
        assert names == ["Child", "Grandchild"]


def test_a_decorator_finds_what_it_calls_at_once(module: Module) -> None:
    users_module = module("""
        def register(cls):
            cls.table = later()
            return cls
        def later(): return LATEST
        LATEST = 7

        @register
        class A: pass
    """)
    assert capture(users_module.A).load().table == 7


def test_variables_of_enclosing_functions_travel_when_plain(module: Module) -> None:
    users_module = module("""
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
    plain, stuck, local = users_module.make(3, object())
    assert capture(plain).load()(2) == 7
    assert capture(local).load()().get() == 6
    assert capture(local).load().text == local.text  # taking the indentation off changes no string
    with pytest.raises(SpecError, match="stuck uses handle, a object"):
        capture(stuck)


def test_objects_of_dataclasses_travel_with_what_they_hold(module: Module) -> None:
    """As most people keep a configuration: frozen or not, nested, with defaults that are made."""
    written = module("""
        import functools
        from dataclasses import dataclass, field

        @dataclass(frozen=True)
        class Optimizer:
            lr: float = 0.1
            betas: tuple = (0.9, 0.99)

        @dataclass
        class Config:
            hidden: list = field(default_factory=lambda: [32, 16])
            optimizer: Optimizer = field(default_factory=Optimizer)
            names: dict = field(default_factory=dict)
            width: int = field(init=False)

            def __post_init__(self):
                self.width = sum(self.hidden)

            @functools.cached_property
            def depth(self):
                return len(self.hidden)

        @dataclass(slots=True)
        class Point:
            x: float

        CFG = Config(hidden=[8], optimizer=Optimizer(lr=0.5), names={"a": Point(2.0)})
        CFG.depth

        def settings(other=CFG):
            return (CFG.hidden, CFG.optimizer.lr, CFG.optimizer.betas, CFG.width, CFG.depth,
                    CFG.names["a"].x, other == CFG)
    """)
    source = capture(written.settings)
    assert "Optimizer(lr=0.5, betas=(0.9, 0.99))" in source.code, source.code
    assert source.load()() == written.settings() == ([8], 0.5, (0.9, 0.99), 8, 1, 2.0, True)


def test_modules_of_the_users_own_travel_too(module: Module) -> None:
    module("FACTOR = 4\ndef scaled(x): return FACTOR * x\nclass Unused: pass\n", "users_helpers")
    users_module = module("""
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
    assert capture(users_module.direct).load()(2) == 8
    code = capture(users_module.through).code
    assert "Unused" not in code and "import users_helpers" not in code
    assert capture(users_module.through).load()(2) == 12
    with pytest.raises(SpecError, match=r"whole uses the module users_helpers.*from users_helpers"):
        capture(users_module.whole)
    with pytest.raises(SpecError, match=r"inside imports users_helpers.*outside of inside"):
        capture(users_module.inside)


def test_library_objects_travel_as_imports(module: Module) -> None:
    users_module = module("""
        import concurrent.futures
        import torch
        import torch.nn.functional as F
        from torch import float32 as DTYPE, relu
        from torch.utils.data import TensorDataset
        from typing import Any, Optional
        from workbench.common.errors import SpecError as Wrong

        ACTIVATIONS = {"relu": relu, "tanh": torch.tanh, "gelu": F.gelu}

        def use(x: Optional[int] = None) -> Any:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                done = pool.submit(torch.zeros, 2, dtype=DTYPE).result()
            return TensorDataset(ACTIVATIONS["relu"](done)), Wrong
    """)
    code = capture(users_module.use).code
    assert "import concurrent.futures\n" in code  # `import concurrent` alone would not do
    assert "from workbench.common.errors import SpecError as Wrong\n" in code
    dataset, wrong = capture(users_module.use).load()()
    assert type(dataset).__name__ == "TensorDataset" and wrong is SpecError
    from workbench.tasks.lenet_digits import Task

    assert capture(Task).load() is Task


def test_annotations_that_are_not_evaluated_need_not_travel(module: Module) -> None:
    users_module = module("""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from nowhere import Nothing
        HANDLE = object()
        def function(x: Nothing, y: HANDLE = 1) -> "Nothing":
            z: Nothing = y
            return z
    """)
    assert capture(users_module.function).load()(0) == 1


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


CONFIG = "from dataclasses import dataclass\n@dataclass\nclass C:\n    x: object\n"


@pytest.mark.parametrize(
    ("text", "reason"),
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
        (
            "class f:\n    def a(self): ...\nclass f(f):\n    def b(self): ...",
            "f is made from a former f .* a name of its own, such as f2",
        ),
        ("def f(): ...\ndef f(g=f): ...", "f is made from a former f"),
        (f"{CONFIG}CFG = C(1)\nCFG.more = 2\ndef f(): return CFG", "CFG, a .*C with more state"),
        (
            f"{CONFIG}import torch\nCFG = C(torch.ones(2))\ndef f(): return CFG",
            r"f uses CFG\.x, a torch\.Tensor",
        ),
        (
            "LIST = []\nLIST.append(LIST)\ndef f(): return LIST",
            "f uses a constant that holds itself",
        ),
    ],
)
def test_what_cannot_travel_is_refused_by_name(module: Module, text: str, reason: str) -> None:
    users_module = module(text)
    with pytest.raises(SpecError, match=reason):
        capture(users_module.f)


@pytest.mark.parametrize("value", [3, "text", None, object(), [print]])
def test_only_functions_and_classes_are_captured(value: object) -> None:
    with pytest.raises(SpecError, match="only a function or a class"):
        capture(value)
