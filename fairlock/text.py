"""Text that others wrote: what a terminal, a log and an error may show of it, and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final


def printable(text: str) -> str:
    r"""The text, with every character that a terminal might obey or hide shown as its escape.

    These are control characters (C0 and C1, line ends included), characters that change the
    direction of writing, invisible ones, and lone surrogates: "\x1b[2J" comes out as `\x1b[2J`.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def label_of(owner_name: str) -> str:
    """The owner's label as `printable` shows it, or "an owner without a name" if it is empty."""
    return printable(owner_name) or "an owner without a name"


def extra_missing(needs: str, *, extra: str) -> str:
    """What to do when an optional part of Fairlock is missing: who needs what, of which extra."""
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


DEEPEST: Final = 32
"""Levels of objects and lists in a lock's data. Some versions of Python read a thousand and others
do not, and what one owner stores every other must be able to show."""


def is_nested_at_most(value: object, levels: int) -> bool:
    """Whether a JSON value has at most so many levels of objects and lists."""
    level = [value]
    for _ in range(levels + 1):
        nested = [each for each in level if isinstance(each, Mapping | list | tuple)]
        if not nested:
            return True
        level = [
            inner
            for each in nested
            for inner in (each.values() if isinstance(each, Mapping) else each)
        ]
    return False


def compact_json(value: object) -> str | None:
    """The shortest JSON text; None if there is none: NaN, a lone surrogate, too deep nesting."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (ValueError, TypeError, RecursionError):
        return None
    return text


def as_call(called: str, first: Iterable[str], named: Iterable[tuple[str, object]]) -> str:
    """A call as it should be written: `hold(name, lease=30)`. No text is shown."""
    if called == "hold_all":
        return 'hold_all(["a", "b"], …), one list of all names'
    shown = (f"{n}={v if isinstance(v, bool | int | float) else '…'}" for n, v in named)
    return f"{called}({', '.join([*first, *shown])})"


_LONGEST_SHOWN_VALUE: Final = 60


def describe(value: object) -> str:
    """A value that may be an owner_id, or hold one: its kind, and the literal of a number."""
    if isinstance(value, str):
        # With the character that most likely breaks the rule.
        odd = next((letter for letter in value if not letter.isprintable()), None)
        described = f"text of {len(value)} character{'' if len(value) == 1 else 's'}"
        return described if odd is None else f"{described}, with U+{ord(odd):04X}"
    harmless = value is None or isinstance(value, bool | int | float | Mapping | list | tuple)
    return shorten(value) if harmless else f"a value of type {type(value).__name__}"


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


ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+>")
NEVER_MEANT: Final = re.compile(rf"^\${{1,2}}\.|\{{%|{ADDRESS.pattern}")
"""What shows that a name is not what its writer wanted. An expression that nothing has evaluated
would be one lock for all customers. An address would be another lock in each process."""


def fault_of_formatting(name: str) -> str:
    """What to do about a name in which `NEVER_MEANT` is found."""
    if ADDRESS.search(name):
        return "must not contain the address of an object: pass its id"
    found = "contain {%" if "{%" in name else f"start with {name[: name.index('.') + 1]}"
    what = "a JSONPath or JSONata expression that was not evaluated: pass its value"
    return f"must not {found}, {what}"


_MISSING_PART: Final = re.compile(
    r"(?:^|[/:#.])(None|null|undefined|nan|NaN)(?=$|[/:#.])|[/:#]($)|/(?=/)(?<!:/)()"
    r"|(\{[A-Za-z_][\w.\[\]]*\})"
)


def missing_part(name: str) -> str | None:
    """The part of a lock's name that was most likely formatted from a value that was missing.

    It is no error, because such an id may exist: there are people whose name is Null.
    """
    found = _MISSING_PART.search(name)
    return found and next(part for part in found.groups() if part is not None)
