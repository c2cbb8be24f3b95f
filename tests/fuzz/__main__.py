"""`make fuzz`: prints the figures; ends with status 1 if there is a finding.

Arguments: requests of handlers, calls of clients, seed.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from tests.fuzz.clients import fuzz_clients
from tests.fuzz.handlers import fuzz_handlers

_DEFAULTS: Final = (100_000, 25_000, 1)


def main() -> int:
    given = tuple(map(int, sys.argv[1:]))
    requests, calls, seed = (*given, *_DEFAULTS[len(given) :])
    found = 0
    for name, fuzz, number in (
        ("handlers", fuzz_handlers, requests),
        ("clients", fuzz_clients, calls),
    ):
        began = time.monotonic()
        findings = fuzz(number, seed=seed)
        sys.stdout.write(f"{findings.figures(name, time.monotonic() - began)}\n")
        for example in findings.examples:
            sys.stdout.write(f"  {example[:2_000]}\n")
        found += findings.defects.total()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
