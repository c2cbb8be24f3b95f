"""Text that others wrote: what a terminal and a log may show of it, and what is a lock's name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final


def printable(text: str) -> str:
    r"""The text, with every character that a terminal might obey or hide shown as its escape.

    These are control characters (C0 and C1, line ends included), characters that change the
    direction of writing, invisible ones, and lone surrogates: "\x1b[2J" comes out as `\x1b[2J`.
    """
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def label_of(owner_name: str) -> str:
    """The owner's label as `printable` shows it, or "an owner without a name" if it is empty."""
    return printable(owner_name) or "an owner without a name"


def extra_missing(needs: str, *, extra: str) -> str:
    """What to do when an optional part of Fairlock is asked for, and is not installed.

    Args:
        needs: who needs which packages, for instance "fairlock.cdk needs aws-cdk-lib".
        extra: the extra of the distribution that has them.
    """
    return (
        f"{needs}, an optional part of Fairlock: "
        f"install Fairlock from its repository with the extra {extra!r}"
    )


def documented(page: str) -> str:
    """Where a page of `docs` is: in the repository, if the package names it."""
    from importlib.metadata import metadata  # noqa: PLC0415 - the functions do not need it

    urls = metadata("fairlock").get_all("Project-URL") or []
    repository = dict(url.split(", ", 1) for url in urls).get("Repository")
    return f"{repository}/blob/main/docs/{page}" if repository else f"docs/{page}"


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


DEEPEST: Final = 32
"""Levels of objects and lists in a lock's data. Some versions of Python read a thousand and others
do not, and what one owner stores every other must be able to show."""


def is_nested_at_most(value: object, levels: int) -> bool:
    """Whether a JSON value has at most so many levels of objects and lists."""
    level = [value]
    for _ in range(levels + 1):
        inner: list[object] = []
        is_flat = True
        for each in level:
            if isinstance(each, Mapping | list | tuple):
                is_flat = False
                inner += each.values() if isinstance(each, Mapping) else each
        if is_flat:
            return True
        level = inner
    return False


_LONGEST_SHOWN_VALUE: Final = 60


def describe(value: object) -> str:
    """A value that may be an owner_id, or hold one: its kind, and the literal of a number."""
    if isinstance(value, str):
        return _describe_text(value)
    harmless = value is None or isinstance(value, bool | int | float | Mapping | list | tuple)
    return shorten(value) if harmless else f"a value of type {type(value).__name__}"


def _describe_text(text: str) -> str:
    """Text without its contents, but with the character that most likely breaks the rule."""
    odd = next((letter for letter in text if not letter.isprintable()), None)
    described = f"text of {len(text)} character{'' if len(text) == 1 else 's'}"
    return described if odd is None else f"{described}, with {_code(odd)}"


def shorten(value: object) -> str:
    """Shows a value in a message: its literal, cut to a length that suits a log line.

    Never fails, whatever the value: this runs while an error is being made. Contents of objects and
    lists are not shown.
    """
    if isinstance(value, Mapping):
        return f"an object with {len(value)} fields"
    if isinstance(value, list | tuple | set | frozenset):
        return f"a list of {len(value)} elements"
    if isinstance(value, str):
        text = repr(value[:_LONGEST_SHOWN_VALUE])
        if len(value) <= _LONGEST_SHOWN_VALUE and len(text) <= _LONGEST_SHOWN_VALUE + 2:
            return text
        return f"{text[:_LONGEST_SHOWN_VALUE]}… ({len(value)} characters)"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - whatever a value's own repr raises
        # A number with thousands of digits, for instance.
        return f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= _LONGEST_SHOWN_VALUE else f"{text[:_LONGEST_SHOWN_VALUE]}…"


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""What Unicode lets a font ignore (zero-width, direction of writing), and separators of lines."""
_LIKE_A_SPACE: Final = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]")
"""Blanks that no reader tells from a space: no-break ones, as copied text has them, and others."""
_WITHOUT_MEANING: Final = frozenset({"Cn", "Co"})
"""Unassigned and private characters: readers see the same box for all of them."""


_MISSING_PART: Final = re.compile(r"(?:^|[/:#.])(None|null|undefined)(?=$|[/:#.])")


def missing_part(name: str) -> str | None:
    """The part of a lock's name that was most likely formatted from a value that was missing.

    It is no error, because such an id may exist: there are people whose name is Null.
    """
    found = _MISSING_PART.search(name)
    return found and found[1]


def utf8_bytes(text: str) -> int | None:
    """The length in UTF-8; None if the text has no UTF-8 form (a lone surrogate)."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def is_text(value: object, *, most_bytes: int, least_bytes: int = 0) -> bool:
    """Whether the value is text of that size without control characters."""
    if not isinstance(value, str) or _CONTROL.search(value):
        return False
    size = utf8_bytes(value)
    return size is not None and least_bytes <= size <= most_bytes


_NUMBER_AS_NAME: Final = ": make it text, by str(…) in Python and $string(…) in JSONata"


def fault_of_name(value: object, *, most_bytes: int) -> str | None:
    """What makes a value no lock name, and what to do about it; None for a lock name.

    People must not mistake a name for another one, and two texts that look alike are two locks.
    """
    size = utf8_bytes(value) if isinstance(value, str) else None
    if not isinstance(value, str) or not size:
        said = f"must be a string of 1 to {most_bytes} bytes of UTF-8"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return said + _NUMBER_AS_NAME * is_number
    if size > most_bytes:
        most = f"must have at most {most_bytes} bytes of UTF-8, and has {size}"
        return f"{most}: shorten it, or use a hash of the long part"
    if value != value.strip(" "):
        return "must not begin or end with a space: remove it, as strip() does"
    for kind, remedy, letters in (
        ("control", "remove it", _CONTROL),
        ("invisible", "remove it", _INVISIBLE),
        ("blank", "use a plain space", _LIKE_A_SPACE),
    ):
        if found := letters.search(value):
            letter = f"{_code(found[0])} at position {found.start() + 1}"
            return f"must not contain the {kind} character {letter}: {remedy}"
    if not unicodedata.is_normalized("NFC", value):
        return "must be in NFC: pass it through unicodedata.normalize('NFC', …)"
    # A later Unicode may compose what has no meaning yet: then one name would be two.
    odd = next((each for each in value if unicodedata.category(each) in _WITHOUT_MEANING), None)
    return odd and f"must not contain {_code(odd)}, which is unassigned or private: remove it"


def _code(letter: str) -> str:
    return f"U+{ord(letter):04X}"
