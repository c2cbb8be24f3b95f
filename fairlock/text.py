"""Text that somebody else wrote, as a terminal and a log may show it."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text, with every character that a terminal might obey or hide shown as its escape.

    These are control characters (C0 and C1, line ends included), characters that change the
    direction of writing, invisible ones, and lone surrogates: "\x1b[2J" comes out as `\x1b[2J`.
    """
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def label_of(owner_name: str) -> str:
    """The owner's label as `printable` shows it, or "an owner without a name" if it is empty."""
    return printable(owner_name) or "an owner without a name"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
