"""Searches that still find something: what the protocol does not do yet, or cannot do."""

from __future__ import annotations

from typing import Final

from tests.model.cast import Workflow
from tests.model.clients import Client
from tests.model.properties import Property
from tests.model.scene import Promise, Scene
from tests.model.scenes import ANNA
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

REDRIVEN_IN_THAT_MOMENT: Final = Scene(
    name="an execution is redriven between the question whether it is over and its eviction",
    cast=(ANNA, Workflow(name="ben", place=1)),
    arrived=("ben", "anna"),
    stops=1,
    redrives=1,
    stopped_in_calls=False,
    promises=frozenset({Promise.HARMED}),
)
