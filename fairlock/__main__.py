"""`python -m fairlock`."""

from __future__ import annotations

from fairlock.cli import main

if __name__ == "__main__":
    main()
