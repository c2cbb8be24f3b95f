"""`make bench`: measures everything in one run, and writes docs/performance.md with its pictures.

python -m bench             about 9 minutes
python -m bench --quick     seconds: tests the bench itself, and writes to out/bench
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

from rich.console import Console

from bench import (
    cold_start,
    contention,
    growth,
    hand_off,
    held,
    permits,
    uncontended,
    waiting,
)
from bench.bed import Bed, Figures
from bench.plots import draw
from bench.report import document
from bench.systems import prepare_other
from testbed.localaws import LocalAws

SECTIONS: Final[dict[str, ModuleType]] = {
    "uncontended": uncontended,
    "contention": contention,
    "waiting": waiting,
    "permits": permits,
    "held": held,
    "growth": growth,
    "cold_start": cold_start,
    "hand_off": hand_off,
}
"""In the order of the document."""
_NEEDED_SECONDS: Final = {
    "hand_off": 0,
    "uncontended": 50,
    "contention": 150,
    "cold_start": 60,
    "permits": 30,
    "held": 80,
    "growth": 60,
    "waiting": 10,
}
"""In the order of the run; a section begins only if there is so much time left."""
_LONGEST_SECONDS: Final = 590


def main() -> int:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description="measures locks, and writes docs/performance.md")
    parser.add_argument("--quick", action="store_true", help="seconds, figures mean nothing")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these, and write to out/bench")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)  # Locks that are handed over, waits that end: not news here.
    console = Console()
    began = time.monotonic()
    figures = _measure(console, arguments.only or _NEEDED_SECONDS, quick=arguments.quick)
    is_whole = not arguments.quick and not arguments.only
    folder = Path("docs" if is_whole else "out/bench")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    Path("out").mkdir(exist_ok=True)
    Path("out/bench.json").write_text(json.dumps(figures, indent=2) + "\n")
    text = document(SECTIONS, figures, seconds=time.monotonic() - began)
    (folder / "performance.md").write_text(text)
    draw(figures, folder / "images")
    sys.stdout.write(text)
    console.print(f"written to {folder / 'performance.md'}")
    missing = [name for name in arguments.only or SECTIONS if name not in figures]
    if missing:
        console.print(f"not measured: {', '.join(missing)}")
    return int(bool(missing))


def _measure(console: Console, names: Iterable[str], *, quick: bool) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    ends_at = time.monotonic() + _LONGEST_SECONDS
    with LocalAws() as aws:
        os.environ.update(aws.environment)  # For the processes, too, that are started from here.
        bed = Bed(aws.endpoint_url, quick=quick, ends_at=ends_at)
        bed.prepare()
        prepare_other(aws.endpoint_url)
        for name in names:
            if not quick and bed.left() < _NEEDED_SECONDS[name]:
                continue
            began = time.monotonic()
            try:
                figures[name] = SECTIONS[name].measure(bed)
            except Exception:  # noqa: BLE001 - the other sections took minutes
                console.print_exception()
            console.print(f"{name}: {time.monotonic() - began:.0f} s")
    return figures


if __name__ == "__main__":
    sys.exit(main())
