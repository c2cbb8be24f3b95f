"""Lock names made of parts, without two different lists of parts that make one name."""

from __future__ import annotations

from fairlock.errors import InvalidRequest
from fairlock.wire.rules import LOCK_NAME, require


def composite_name(*parts: str) -> str:
    """Joins parts with slashes: `composite_name("customer", customer_id)`.

    Guaranteed: other parts make another name, also if a part contains a slash, which becomes `%2F`
    (and a percent sign `%25`). The simpler `f"{a}/{b}"` makes one name of `a/b` + `c` and of
    `a` + `b/c`. Parts without these two characters stay as they are.

    Raises:
        InvalidRequest: there is no part, one is no string, or the name breaks the rule of names.
    """
    for part in parts:
        if not isinstance(part, str):
            raise InvalidRequest(field="parts", rule="must be strings", value=part)
    name = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    require("name", LOCK_NAME, name)
    return name
