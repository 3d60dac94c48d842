"""The docstring of every function begins with a verb in the imperative (PEP 257)."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
NO_VERBS = """
    A An The This That These Those It Its They Their There Here One Two Three Four Both Each Every
    All Any Some None No Not Nothing Nobody Everybody Such Same Only Other What Who Whose Whoever
    Which Why How When Where Whether Whatever Is Are Was Were Am Does Did Has Had Can Could May
    Might Must Shall Should Will Would If As At By For From In Into Of On Over To Under Until With
    Without Below Above Before After Between During Since While So Then Also But And Or
""".split()
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def is_imperative(docstring: str) -> bool:
    """Return whether the first word can be one: no noun phrase, question, or "Returns"."""
    first = re.match(r"[A-Z][a-z]+(?=[ .,:;])", docstring)
    if first is None or first[0] in NO_VERBS:
        return False
    return not re.search(r"[^s]s$|(?<!e)ed$", first[0])


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return functions and methods; a property is described, as an attribute is."""
    every = [one for one in ast.walk(tree) if isinstance(one, FUNCTIONS)]
    return [
        one
        for one in every
        if not any("property" in ast.unparse(each) for each in one.decorator_list)
    ]


def test_every_docstring_begins_with_a_verb() -> None:
    wrong = []
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        for function in functions(ast.parse(path.read_text())):
            docstring = ast.get_docstring(function)
            if docstring and not is_imperative(docstring):
                place = f"{path.relative_to(ROOT)}:{function.lineno}"
                wrong.append(f'{place}: {function.name}: "{docstring.splitlines()[0]}"')
    assert not wrong, "a docstring begins with a verb, such as Return:\n" + "\n".join(wrong)


def test_modules_and_classes_are_described_by_a_noun_or_a_verb() -> None:
    """No headless clause, such as "What a rank knows"."""
    heads = {"What", "Who", "Which", "How", "Where", "When", "Whether", "Why"}
    wrong = []
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in [tree, *(one for one in ast.walk(tree) if isinstance(one, ast.ClassDef))]:
            words = (ast.get_docstring(node) or "").split()
            if words and words[0] in heads:
                place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
                wrong.append(f"{place}: {' '.join(words[:6])} ...")
    assert not wrong, "\n".join(wrong)
