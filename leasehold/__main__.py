"""`python -m leasehold`."""

from __future__ import annotations

from leasehold.cli import main

if __name__ == "__main__":
    main()
