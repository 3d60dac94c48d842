"""One process that computes, or copies, by itself: a script, which ceiling.py runs.

python kernel.py compute|copy < 0.2        for this many seconds, as soon as the line comes > 812.5
this much per second: products of small matrices, or copies of a large array
"""

from __future__ import annotations

import sys
import time

import numpy as np

SMALL = 96  # rows and columns: three matrices of it fit into a core's own cache
LARGE = 32 * 2**20  # bytes: no core's cache holds it
TURNS = {"compute": 20, "copy": 1}  # between two looks at the clock


def main(kind: str) -> None:
    matrix = np.full((SMALL, SMALL), 1e-3, np.float32)
    product = np.empty_like(matrix)
    source, target = (np.ones(LARGE if kind == "copy" else 1, np.uint8) for _ in range(2))
    print("ready", flush=True)
    for line in sys.stdin:
        done, start = 0, time.perf_counter()
        until = start + float(line)
        while (now := time.perf_counter()) < until:
            for _ in range(TURNS[kind]):
                if kind == "compute":
                    np.matmul(matrix, matrix, out=product)
                else:
                    np.copyto(target, source)
            done += TURNS[kind]
        print(done / (now - start), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
