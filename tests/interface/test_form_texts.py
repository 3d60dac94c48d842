"""A form's Experiment as a text: as code, and as a link."""

from __future__ import annotations

import base64
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import workbench as wb
from tests.interface.plain import many, plain
from workbench.common.errors import SpecError
from workbench.experiment.spec import Experiment, Network
from workbench.experiment.web_link import LARGEST, LONGEST
from workbench.interface import form
from workbench.user_code.source import Source

RUFF = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=88", "-"]


# ---- as code


@many
@given(plain)
def test_the_code_evaluates_to_an_equal_experiment(exp: Experiment) -> None:
    code = form.as_code(exp)
    assert eval(code, {"wb": wb}) == exp
    names: dict[str, Any] = {"wb": _without_run()}
    exec(form.as_program(exp), {"__builtins__": {"__import__": lambda *_: names["wb"]}}, names)
    assert names["exp"] == exp


def _without_run() -> Any:
    class Workbench:
        run = staticmethod(lambda exp: exp)

        def __getattr__(self, name: str) -> Any:
            return getattr(wb, name)

    return Workbench()


@pytest.mark.full
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(plain)
def test_the_code_is_laid_out_as_a_formatter_does(exp: Experiment) -> None:
    text = form.as_program(exp) + "\n"
    done = subprocess.run(RUFF, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert text == done.stdout


def test_the_code_says_only_what_differs_from_the_defaults() -> None:
    assert form.as_code(Experiment()) == "wb.Experiment()"
    exp = Experiment(ranks=2, options={}, network=Network(links={(0, 1): wb.Link(down=True)}))
    expected = "wb.Experiment(ranks=2, network=wb.Network(links={(0, 1): wb.Link(down=True)}))"
    assert form.as_code(exp) == expected


def test_code_of_the_users_own_stands_there_by_name() -> None:
    own = Source(name="mine", code="def mine(comm, x):\n    return x\n")
    exp = Experiment(all_reduce=own)
    assert form.as_code(exp) == "wb.Experiment(all_reduce=mine)"
    assert eval(form.as_code(exp), {"wb": wb, "mine": own}) == exp


def test_numbers_without_a_literal() -> None:
    exp = Experiment(strategy="ddp", options={"bucket_cap_mb": float("inf")})
    assert eval(form.as_code(exp), {"wb": wb}) == exp


# ---- as a link


@pytest.mark.full
@many
@given(plain)
def test_a_link_gives_an_equal_experiment(exp: Experiment) -> None:
    link = form.to_link(exp)
    assert set(link) <= {*"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"}
    assert form.from_link(link) == exp


def packed(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(zlib.compress(data, 9)).decode().rstrip("=")


def test_a_link_carries_no_code_either_way() -> None:
    own = Source(name="mine", code="def mine(comm, x):\n    return x\n")
    with pytest.raises(SpecError, match="carries code of its author's in all_reduce"):
        form.to_link(Experiment(all_reduce=own))
    for exp in (Experiment(all_reduce=own).to_yaml(), "task: /etc/passwd.py:Task\n"):
        with pytest.raises(SpecError, match="carries its author's code"):
            form.from_link(packed(exp))


def test_a_link_names_no_file(tmp_path: Path) -> None:
    """Text without a line's end could be taken for a path."""
    Experiment(ranks=3).to_yaml(tmp_path / "spec.yaml")
    with pytest.raises(SpecError, match="not the YAML of an experiment"):
        form.from_link(packed(str(tmp_path / "spec.yaml")))


@pytest.mark.parametrize(
    "link",
    [
        "",
        "no spaces!",
        "AAAA",
        form.to_link(Experiment(ranks=3))[:-9],
        form.to_link(Experiment(ranks=3))[4:],
        packed(b"\xff\xfe\x00"),
        packed("a: [1, 2\n"),
        packed("[" * 5000),
        packed("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n"),
        packed("strategy: !!python/object/apply:os.system ['true']\n"),
        packed(b"\0" * (LARGEST + 1)),
        "A" * (LONGEST + 1),
    ],
)
def test_garbage_is_refused_in_words(link: str) -> None:
    with pytest.raises(SpecError, match="this link"):
        form.from_link(link)


def test_what_a_link_carries_is_checked() -> None:
    with pytest.raises(SpecError, match=r"Experiment\.ranks = 0"):
        form.from_link(packed("ranks: 0\n"))
    with pytest.raises(SpecError, match="has no field 'rank'"):
        form.from_link(packed("rank: 4\n"))


def test_an_experiment_that_is_too_long_for_a_link_says_so() -> None:
    pairs = [(a, b) for a in range(40) for b in range(40) if a != b]
    links = {pair: wb.Link(latency=f"{7919 * n % 9973} us") for n, pair in enumerate(pairs)}
    with pytest.raises(SpecError, match="makes a link of"):
        form.to_link(Experiment(ranks=40, network=Network(links=links)))
