"""The register of controls is whole: each fits the product, and a file of tests catches it."""

from __future__ import annotations

import ast

import pytest

from tests.controls.control import CHECKOUT, REGISTER, Control, caught, read_register


@pytest.mark.parametrize("control", REGISTER.values(), ids=REGISTER)
def test_a_control_fits_the_product(control: Control) -> None:
    """`source` finds its place once; the changed source is a program."""
    ast.parse(control.source())
    assert control.lines()


def test_names_of_controls_differ() -> None:
    assert len([*read_register()]) == len(REGISTER)


def test_a_control_without_its_place_is_an_error() -> None:
    control = Control("none", "clock.py", "no such text", "", "nothing")
    with pytest.raises(ValueError, match=r"clock\.py has 0 places"):
        control.source()


def test_of_the_files_that_catch_a_control_one_is_there() -> None:
    """Before the last one goes, another has to catch the control: `python -m tests.controls`."""
    uncaught = [
        name
        for name, files in caught().items()
        if name in REGISTER and files and not any((CHECKOUT / file).exists() for file in files)
    ]
    assert uncaught == []
