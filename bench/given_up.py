"""What was tried to make it faster, and given up: part of the document, without figures."""

from __future__ import annotations

from typing import Final

_TRIED: Final = (
    (
        "Expressions whose names are remembered as a whole: nothing that can be seen beside the "
        "time that boto3 takes."
    ),
    (
        "Other settings of botocore (no compression, no checksums, no endpoints by account, the "
        "older way to retry): no difference."
    ),
    (
        "Conditions so short that the emulator evaluates them as fast as those of two bare writes: "
        "each of them is needed for a guarantee. What could be said more shortly, is."
    ),
    (
        "Names instead of placeholders in expressions (`held` for `#held`): saves hardly anything, "
        "and a name that DynamoDB reserves needs its placeholder all the same."
    ),
    (
        "A release that asks for the attributes it removes (`UPDATED_OLD`), in the functions too, "
        "which measure how long a lock was held: no document says that DynamoDB shows removed ones "
        "there. (An acquire asks that way for the token, which it sets.)"
    ),
    (
        "Sources without docstrings and comments in the asset, and Powertools without its tracer, "
        "which is imported with it: no difference that could be told from chance."
    ),
    (
        "A store without the operations of administration, so that acquire imports fewer modules: "
        "one more class for very little of a cold start."
    ),
    (
        "Records of the protocol that are not frozen: their classes are made faster, but by too "
        "little to give up that nobody changes them."
    ),
    (
        "A client for Step Functions that is made when it is first needed: a direct caller's cold "
        "start is shorter, but the first workflow pays for it with the small share of a processor "
        "that an invocation has."
    ),
    (
        "A thousand waiters on the emulator: each poll reads the whole queue there, so they "
        "measured the emulator only."
    ),
)


def lines() -> list[str]:
    """The section of the document."""
    return ["## Tried and given up", "", *(f"* {each}" for each in _TRIED), ""]
