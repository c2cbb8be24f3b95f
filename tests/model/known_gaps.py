"""Searches that still find something: what the protocol does not do yet, or cannot do."""

from __future__ import annotations

from typing import Final

from tests.model.contention.clients import Client
from tests.model.contention.invariants import Property
from tests.model.search import Configuration

DELAYED_DUPLICATE: Final = Configuration(
    name="an acquire arrives after its owner and another have released",
    clients=(
        Client(name="anna"),
        Client(name="ben", gives_up=True),
        Client(name="ben's duplicate", echoes="ben"),
        Client(name="carl"),
    ),
    properties=frozenset({Property.ENDED}),
)
KNOWN_GAPS: Final = (DELAYED_DUPLICATE,)
