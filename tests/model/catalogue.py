"""Runs one search by name, in whatever process it is wanted."""

from __future__ import annotations

from tests.model.contention.configurations import CONFIGURATIONS
from tests.model.contention.mutants import MUTANTS, Mutant
from tests.model.known_gaps import KNOWN_GAPS
from tests.model.search import Configuration, Report, search


def run_configuration(name: str) -> Report:
    """Searches the protocol as it is."""
    return search(next(c for c in (*CONFIGURATIONS, *KNOWN_GAPS) if c.name == name))


def run_mutant(name: str) -> Report:
    """Searches the protocol without one of its protections."""
    with MUTANTS[name].applied():
        return search(_configuration(name, MUTANTS[name]))


def run_control(name: str) -> Report:
    """The same search as a mutant's, but of the protocol as it is."""
    return search(_configuration(name, MUTANTS[name]))


def control_of(name: str) -> str | None:
    """The configuration that already is this mutant's control, if there is one."""
    mutant = MUTANTS[name]
    same = (c for c in CONFIGURATIONS if (c.clients, c.faults) == (mutant.clients, mutant.faults))
    return next((c.name for c in same), None)


def _configuration(name: str, mutant: Mutant) -> Configuration:
    return Configuration(
        name=name,
        clients=mutant.clients,
        faults=mutant.faults,
        properties=frozenset({mutant.breaks}),
    )
