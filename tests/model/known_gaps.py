"""Searches that still find something: what the protocol does not do yet, or cannot do."""

from __future__ import annotations

from typing import Final

from tests.model.clients import Client
from tests.model.configurations import workflows
from tests.model.faults import Faults
from tests.model.properties import Property
from tests.model.search import Configuration

MIXED_LIMITS: Final = Configuration(
    name="two clients want another limit than the third",
    clients=(Client(name="anna"), Client(name="ben"), Client(name="carl", limit=2)),
    properties=frozenset({Property.WAKE_UP}),
)
SENT_TWICE: Final = Configuration(
    name="boto3 repeats a write that had happened",
    clients=workflows(3),
    faults=Faults(repeats=1),
    properties=frozenset({Property.ANSWER}),
)
LATE_POLL: Final = Configuration(
    name="a late polling waiter asks again while it is dropped",
    clients=(
        Client(name="anna", pushed=False, waits=False),
        Client(name="ben", pushed=False, polls=1),
        Client(name="carl"),
    ),
    faults=Faults(epochs=1),
    properties=frozenset({Property.ORDER}),
)
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
KNOWN_GAPS: Final = (MIXED_LIMITS, SENT_TWICE, LATE_POLL, DELAYED_DUPLICATE)
