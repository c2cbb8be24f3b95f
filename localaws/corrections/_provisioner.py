"""Groundwork of two corrections: doing more after CloudFormation wrote a resource."""

from collections.abc import Callable, Mapping
from typing import Any

from ministack.services.cloudformation import provisioners


def after_write(resource_type: str, then: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Call `then(physical id, properties)` after each create and update of the resource type."""
    handlers = provisioners._RESOURCE_HANDLERS[resource_type]
    for verb, position in (("create", 1), ("update", 2)):
        original = handlers.get(verb)
        if original is not None:
            handlers[verb] = _followed_by(original, position, then)


def _followed_by(
    original: Callable[..., Any], position: int, then: Callable[[str, Mapping[str, Any]], None]
) -> Callable[..., Any]:
    """`position` is where the handler gets the new properties."""

    def handle(*arguments: Any, **more: Any) -> Any:
        result = original(*arguments, **more)
        then(result[0], arguments[position])
        return result

    return handle
