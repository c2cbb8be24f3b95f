"""Versioned items: a number that grows with each write, and the id of the write that made it.

    reader A                   item                     reader B
      │ reads                    version 7, id x           reads │
      │ writes on condition      version = 7 AND id = x          │
      ├────────────────────────▶ version 8, id a                 │
      │                          condition fails ◀───────────────┤

The number alone would do if replies never got lost and items were never deleted. By the id a writer
whose reply got lost recognizes its own write, and an item that was deleted and created again is not
taken for the one that was read, although it may have reached the same number.

An id is two words, `b.a`: one of the write's own, and that of the write in whose place it was made.
"""

from __future__ import annotations

from typing import Final

DEFAULT_VERSION_ATTRIBUTE: Final = "version"

NOT_THERE: Final = "attribute_not_exists(#key)"
THERE_WITHOUT_VERSION: Final = "attribute_exists(#key) AND attribute_not_exists(#version)"
SAME_VERSION: Final = "#version = :version AND attribute_not_exists(#write_id)"
"""As other code wrote it, which keeps only the number."""
SAME_WRITE: Final = "#version = :version AND #write_id = :write_id"


def write_id_attribute(version_attribute: str) -> str:
    """Where an item keeps the id of the write that made its version."""
    return f"{version_attribute}_id"


def write_id(own: str, *, seen: object) -> str:
    """The id of a write, from a word that no one else has and the id that was seen, if any."""
    return f"{own}.{_own(seen)}"


def happened(*, ours: str, seen: object, found: object) -> bool | None:
    """Whether a write happened whose reply got lost; None if the item does not tell.

        seen   ours   found
        a.x    b.a    b.a     it did
        a.x    b.a    c.b     it did, and another program wrote since
        a.x    b.a    c.a     it did not: c was written in the place of the same
        a.x    b.a    a.x     it did not: another program has raised only the number

    In all other cases no one can tell: there were several writes since, or one by a program that
    stores no ids, or the item was deleted, perhaps after our write.

    Args:
        ours: the id of the write.
        seen: the id that the item had before; None if it had none.
        found: the id that it has now; None if it has none, or is gone.
    """
    if found == ours or _after(found) == _own(ours):
        return True
    if seen is not None and (found == seen or _after(found) == _own(seen)):
        return False
    return None


def _own(write_id: object) -> str:
    return write_id.partition(".")[0] if isinstance(write_id, str) else ""


def _after(write_id: object) -> str | None:
    """None if the id does not tell."""
    return (write_id.partition(".")[2] or None) if isinstance(write_id, str) else None
