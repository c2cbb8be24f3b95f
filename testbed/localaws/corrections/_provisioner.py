"""Groundwork of corrections: doing more where CloudFormation writes and deletes a resource.

CloudFormation's module loads nearly all services, which takes as long as starting the rest, and
many instances never use it; so its handlers are wrapped when the emulator loads it.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import ministack.app

Handlers = dict[str, Callable[..., Any]]

_changes: list[Callable[[Any], None]] = []
"""Of CloudFormation's module, once it is loaded."""


def when_loaded(change: Callable[[Any], None]) -> None:
    """Have `change` edit CloudFormation's module once it is loaded."""
    _watch_loading()
    _changes.append(change)


def wrap(resource_type: str, change: Callable[[Handlers], None]) -> None:
    """Have `change` edit the resource type's handlers (create, update, delete) once loaded."""
    when_loaded(lambda module: change(_types(module)[resource_type]))


def add(resource_type: str, handlers: Handlers) -> None:
    """Have CloudFormation make resources of a type that the emulator does not know."""
    when_loaded(lambda module: _types(module).update({resource_type: handlers}))


def _types(module: Any) -> dict[str, Handlers]:
    types: dict[str, Handlers] = module.provisioners._RESOURCE_HANDLERS
    return types


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
            while _changes:
                _changes.pop(0)(module)
        return module

    ministack.app._get_module = get_module
