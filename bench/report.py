"""docs/performance.md, written from the figures of one run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Final

from bench import goals
from bench.bed import Figures

_DISTRIBUTIONS: Final = ("boto3", "aws-lambda-powertools", "ministack")
_WIDTH: Final = 120
_NOT_PROSE: Final = ("|", "#", "!")
_OTHER: Final = "python-dynamodb-lock 0.9.1"


def document(
    sections: Mapping[str, ModuleType], figures: dict[str, Figures], *, seconds: float = 0
) -> str:
    """The whole document, of a run of so many seconds. A section without figures is named."""
    left_out = [name for name in sections if name not in figures]
    lines = [
        "# Performance",
        "",
        (
            "One run of `make bench` wrote this page, with an emulator in place of AWS: rely on "
            "the ratios, each the median of all rounds, not on the milliseconds. **Arithmetic** "
            "was not measured."
        ),
        "",
        f"Measured on {datetime.now(UTC):%Y-%m-%d} in {seconds:.0f} s: {_machine()}.",
        "",
    ]
    lines += [*goals.lines(sections, figures), ""]
    for name, module in sections.items():
        if name in figures:
            lines += [*module.lines(figures[name]), ""]
    if left_out:
        lines += [f"Not measured in this run: {', '.join(left_out)}.", ""]
    return "\n".join(map(_wrapped, lines))


def _wrapped(line: str) -> str:
    if line.startswith(_NOT_PROSE):
        return line
    indent = "  " if line.startswith("* ") else ""
    return textwrap.fill(
        line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _machine() -> str:
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _DISTRIBUTIONS]
    python = ".".join(map(str, sys.version_info[:3]))
    processor = f"{platform.system()} {platform.machine()}, {_model()}{os.cpu_count()} processors"
    return ", ".join([processor, f"Python {python}", *versions, _OTHER])


def _model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(names, "")
    return f"{name}, " if name else ""
