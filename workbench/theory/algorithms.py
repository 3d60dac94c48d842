"""Algorithms by name, as theory knows them: by a closed formula, else counted in their file."""

from __future__ import annotations

from workbench import formulas
from workbench.collectives import OPERATIONS, algorithms
from workbench.formulas import Algorithm


def without_formula(operation: str) -> list[str]:
    """Return the algorithms of an operation that have a file and no formula."""
    return [name for name in algorithms(operation) if name not in formulas.OPERATIONS[operation]]


def find(
    algorithm: str | Algorithm, operation: str = "all_reduce", way: str = "", n: int = 0
) -> Algorithm:
    """Return the algorithm of this name; ``way``: what the record of ``n`` ranks says of how it
    goes. Raises ValueError, which lists the names that there are.
    """
    if (
        isinstance(algorithm, str)
        and operation in OPERATIONS
        and algorithm in without_formula(operation)
    ):
        from workbench.theory.counted import counted  # it needs torch, and formulas do not

        return counted(operation, algorithm)
    return formulas.find(algorithm, operation, way, n)
