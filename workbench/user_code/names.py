"""The names that a piece of source uses, and when it needs them."""

from __future__ import annotations

import ast
import symtable

from workbench.common.errors import SpecError
from workbench.common.origins import is_own_file

_COMPREHENSIONS = {"listcomp", "setcomp", "dictcomp", "genexpr"}


def globals_of(code: str) -> tuple[set[str], set[str]]:
    """Return the globals read while ``code`` runs, and those read when its functions are called."""
    now: set[str] = set()
    later: set[str] = set()

    def walk(table: symtable.SymbolTable, called: bool) -> None:
        for symbol in table.get_symbols():
            outermost = table.get_type() == "module"
            if symbol.is_referenced() and (outermost or symbol.is_global()):
                (later if called else now).add(symbol.get_name())
        for child in table.get_children():
            deferred = child.get_type() == "function" and child.get_name() not in _COMPREHENSIONS
            walk(child, called or deferred)

    walk(symtable.symtable(code, "<captured>", "exec"), called=False)
    return now, later - now


def attributes_of(tree: ast.AST) -> dict[str, set[tuple[str, ...]]]:
    """Return, of each name, the attribute chains read of it.

    np.linalg.norm gives np: (linalg, norm).
    """
    result: dict[str, set[tuple[str, ...]]] = {}

    def walk(node: ast.AST) -> None:
        chain: list[str] = []
        base = node
        while isinstance(base, ast.Attribute):
            chain.insert(0, base.attr)
            base = base.value
        if isinstance(base, ast.Name):
            result.setdefault(base.id, set()).add(tuple(chain))
        else:
            for child in ast.iter_child_nodes(base):
                walk(child)

    walk(tree)
    return result


class WithoutAnnotations(ast.NodeTransformer):
    """Drops annotations: the rest must exist even where annotations are not evaluated."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node


def refuse_own_imports(tree: ast.AST, by: str) -> None:
    """Raise SpecError for an import inside a function that imports a file of the user's own.

    It would run on the rank, which does not have that file.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules = ["." * node.level + (node.module or "")]
        else:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            if module.startswith(".") or is_own_file(module.partition(".")[0]):
                raise SpecError(
                    f"{by} imports {module}, a file of your own, inside of its body: move the "
                    f"import to the top of the file or cell, outside of {by}, so that it can travel"
                )
