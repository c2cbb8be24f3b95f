"""Groundwork of two corrections: doing more where CloudFormation writes and deletes a resource.

CloudFormation's module loads nearly all services, which takes as long as starting the rest, and
many instances never use it; so its handlers are wrapped when the emulator loads it.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import ministack.app

Handlers = dict[str, Callable[..., Any]]

_wraps: list[tuple[str, Callable[[Handlers], None]]] = []


def wrap(resource_type: str, change: Callable[[Handlers], None]) -> None:
    """Have `change` edit the resource type's handlers (create, update, delete) once loaded."""
    _watch_loading()
    _wraps.append((resource_type, change))


def after_write(resource_type: str, then: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Call `then(physical id, properties)` after each create and update of the resource type."""

    def change(handlers: Handlers) -> None:
        for verb, position in (("create", 1), ("update", 2)):
            if handlers.get(verb) is not None:
                handlers[verb] = _followed_by(handlers[verb], position, then)

    wrap(resource_type, change)


def _followed_by(
    original: Callable[..., Any], position: int, then: Callable[[str, Mapping[str, Any]], None]
) -> Callable[..., Any]:
    """`position` is where the handler gets the new properties."""

    def handle(*arguments: Any, **more: Any) -> Any:
        result = original(*arguments, **more)
        then(result[0], arguments[position])
        return result

    return handle


@functools.cache
def _watch_loading() -> None:
    original = ministack.app._get_module

    def get_module(name: str) -> Any:
        module = original(name)
        if name == "cloudformation":
            while _wraps:
                resource_type, change = _wraps.pop(0)
                change(module.provisioners._RESOURCE_HANDLERS[resource_type])
        return module

    ministack.app._get_module = get_module
