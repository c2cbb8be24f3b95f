"""Versioned items: a number that grows with each write, and the id of the write that made it.

    reader A                   item                     reader B
      │ reads                    version 7, id x           reads │
      │ writes on condition      version = 7 AND id = x          │
      ├────────────────────────▶ version 8, id a                 │
      │                          condition fails ◀───────────────┤

The number alone would do if replies never got lost and items were never deleted. By the id a writer
whose reply got lost recognizes its own write, and an item that was deleted and made anew is not
taken for the one that was read, although it may have reached the same number.
"""

from __future__ import annotations

from typing import Final

DEFAULT_VERSION_ATTRIBUTE: Final = "version"

NOT_THERE: Final = "attribute_not_exists(#key)"
THERE_WITHOUT_VERSION: Final = "attribute_exists(#key) AND attribute_not_exists(#version)"
SAME_VERSION: Final = "#version = :version AND attribute_not_exists(#write_id)"
"""As somebody else's code wrote it, who keeps the number only."""
SAME_WRITE: Final = "#version = :version AND #write_id = :write_id"


def write_id_attribute(version_attribute: str) -> str:
    """Where an item keeps the id of the write that made its version."""
    return f"{version_attribute}_id"
