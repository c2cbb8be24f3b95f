"""Wrong protocols: each loses one condition, or one change, of the requests that it sends."""

from __future__ import annotations

from typing import Final

from fairlock.protocol import admission, grants, items, schema
from fairlock.protocol.schema import I_HOLD
from fairlock.store import acquire, keep_alive, release
from tests.support.weakened import Patch, edited, weak

_ALWAYS: Final = ":one = :one"
_SAME_LIMIT: Final = " AND #limit = :limit"
_COUNTS: Final = "#held = #held - :one"
_REVISION: Final = "#mine.#h_revision = #mine.#h_revision"
_NEXT: Final = "#fencing_token = if_not_exists"

MUTANTS: Final[dict[str, Patch]] = {
    "the limit is compared with <>, and with no one else's": weak(
        acquire, "acquire_permit", f"(#held < :limit{_SAME_LIMIT})", instead="#held <> :limit"
    ),
    "the first write ignores the limit in force": weak(
        acquire, "acquire_permit", _SAME_LIMIT, instead=" "
    ),
    "the limit in force is never lowered": (
        items,
        "SET_LIMIT",
        "#limit = if_not_exists(#limit, :limit)",
    ),
    "the limit is compared with <=": weak(
        acquire, "acquire_permit", "#held < :limit", instead="#held <= :limit"
    ),
    "a delayed duplicate may acquire again": (grants, "NOT_RELEASED_BY_ME", _ALWAYS),
    "a holder may acquire again": (grants, "I_DO_NOT_HOLD", _ALWAYS),
    "a takeover ignores a heartbeat in between": edited(
        admission, "eviction", "#over{i}.#h_revision = :seen{i}", ":seen{i} = :seen{i}"
    ),
    "a release needs no permit": weak(
        release, "release_permit", I_HOLD, instead="attribute_exists(#held)"
    ),
    "a release does not count": weak(
        release, "release_permit", _COUNTS, instead=_COUNTS.removesuffix(" - :one")
    ),
    "a token counter belongs to an owner": weak(
        acquire, "acquire_permit", f"{_NEXT}(#fencing_token", instead=f"{_NEXT}(#my_token"
    ),
    "a heartbeat leaves the revision": weak(
        keep_alive, "renew", f"{_REVISION} + :one", instead=_REVISION
    ),
    "a new lock starts its tokens at one": edited(schema, "token_seed", "now_ms * 1000", "0"),
}
