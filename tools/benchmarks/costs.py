"""Measure the costs that the package ships, on a quiet machine: writes choosing/shipped.json.

python -m tools.benchmarks.costs
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import workbench as wb
from workbench.choosing import costs


def main() -> None:
    calibration = wb.calibrate(keep=False, progress=True)
    source = (
        f"shipped (measured on {costs.cores()} cores; wb.calibrate() measures your own machine)"
    )
    place = Path(costs.__file__).with_name("shipped.json")
    place.write_text(replace(calibration.costs, source=source).to_json() + "\n")
    print(calibration, f"\nload {os.getloadavg()[0]:.1f}, written to {place}")


if __name__ == "__main__":
    main()
