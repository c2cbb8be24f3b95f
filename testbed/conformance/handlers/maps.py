"""Requirements 9-1 to 9-20: `map`. Items are worked on one after the other, but for 9-11."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from aws_durable_execution_sdk_python import BatchResult, DurableContext
from aws_durable_execution_sdk_python.concurrency.models import BatchItem, CompletionReason
from aws_durable_execution_sdk_python.config import (
    BatchItemStatus,
    CompletionConfig,
    MapConfig,
    NestingType,
)
from aws_durable_execution_sdk_python.serdes import JsonSerDes, SerDes, SerDesContext

from testbed.conformance.handlers.case import WITHOUT_STATUS, Case, fail, requirement, seconds, told

_LARGE: Final = 70_000
"""Characters: four of these are more than the 256 KB of a checkpoint."""


class _Prefixed(SerDes[str]):
    """A prefix before each result of an item."""

    def serialize(self, value: str, _: SerDesContext) -> str:
        return f"wrapped:{value}"

    def deserialize(self, data: str, _: SerDesContext) -> str:
        return data.removeprefix("wrapped:")


class _Joined(SerDes[BatchResult[str]]):
    """All results of a map in one line."""

    def serialize(self, value: BatchResult[str], _: SerDesContext) -> str:
        return "OPSERDE:" + ",".join(value.get_results())

    def deserialize(self, data: str, _: SerDesContext) -> BatchResult[str]:
        texts = data.removeprefix("OPSERDE:").split(",")
        items = [
            BatchItem(index=index, status=BatchItemStatus.SUCCEEDED, result=text)
            for index, text in enumerate(texts)
        ]
        return BatchResult(items, CompletionReason.ALL_COMPLETED)


def _map(
    case: Case,
    items: Sequence[Any],
    work: Callable[[DurableContext, Any], Any],
    *,
    completion: CompletionConfig | None = None,
    **more: Any,
) -> BatchResult[Any]:
    config: MapConfig[Any] = MapConfig(
        max_concurrency=1, completion_config=completion or CompletionConfig(), **more
    )
    return case.context.map(items, lambda context, item, *_: work(context, item), config=config)


def _each(_: DurableContext, item: Any) -> Any:
    """The item itself, unless it is a body that fails."""
    return item() if callable(item) else item


def _capitals(_: DurableContext, item: str) -> str:
    return item.upper()


@requirement("9-1")
def _basic(case: Case) -> Any:
    config: MapConfig[str] = MapConfig(max_concurrency=1)
    batch: BatchResult[str] = case.context.map(
        case.input,
        lambda context, item, *_: context.step(lambda _: f"Hello, {item}!"),
        name="map",
        config=config,
    )
    return batch.get_results()


@requirement("9-2")
def _items_only(case: Case) -> Any:
    return _map(case, case.input, lambda _, item: 2 * item).get_results()


@requirement("9-3")
def _with_index(case: Case) -> Any:
    config: MapConfig[int] = MapConfig(max_concurrency=1)
    batch: BatchResult[int] = case.context.map(
        case.input, lambda _context, item, index, _items: item + index, config=config
    )
    return batch.get_results()


@requirement("9-4")
def _nothing(case: Case) -> Any:
    return _map(case, case.input, _each).get_results()


@requirement("9-5")
def _fail_fast(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=0)
    return told(_map(case, ["ok", fail, "never"], _each, completion=completion))


@requirement("9-6")
def _raised_again(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=0)
    _map(case, [fail, "never"], _each, completion=completion).throw_if_error()


@requirement("9-7")
def _enough_succeed(case: Case) -> Any:
    completion = CompletionConfig(min_successful=2)
    batch = _map(case, list("abcd"), _each, completion=completion)
    return told(batch, "completionReason", "successCount", "totalCount")


@requirement("9-8")
def _one_failure_is_tolerated(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=1)
    return told(_map(case, ["a", fail, "c"], _each, completion=completion))


@requirement("9-9")
def _too_many_failures(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=1)
    return told(_map(case, [fail, fail, "c"], _each, completion=completion), *WITHOUT_STATUS)


@requirement("9-10")
def _too_large_a_share_fails(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_percentage=25)
    batch = _map(case, [fail, fail, "c", "d"], _each, completion=completion)
    return told(batch, *WITHOUT_STATUS)


@requirement("9-11")
def _two_at_once(case: Case) -> Any:
    config: MapConfig[str] = MapConfig(max_concurrency=2)
    batch: BatchResult[str] = case.context.map(
        ["r0", "r1", "r2"], lambda _, item, *__: item, config=config
    )
    return batch.get_results()


@requirement("9-12")
def _flat(case: Case) -> Any:
    def work(context: DurableContext, item: str) -> str:
        return context.step(lambda _: item)

    return _map(case, ["fa", "fb"], work, nesting_type=NestingType.FLAT).get_results()


@requirement("9-13")
def _names(case: Case) -> Any:
    batch = _map(
        case, case.input, lambda _, item: 10 * item, item_namer=lambda item, _: f"item-{item}"
    )
    return batch.get_results()


@requirement("9-14")
def _serdes_of_items(case: Case) -> Any:
    return _map(case, ["x", "y"], _capitals, item_serdes=_Prefixed()).get_results()


@requirement("9-15")
def _item_waits(case: Case) -> Any:
    def work(context: DurableContext, item: str) -> str:
        if item == "r1":
            context.wait(seconds(1))
        return context.step(lambda _: item)

    return _map(case, ["r0", "r1"], work).get_results()


@requirement("9-16")
def _large_results(case: Case) -> Any:
    batch = _map(case, list("abcd"), lambda _, item: item * _LARGE)
    return told(batch, "successCount", "totalCount")


@requirement("9-17")
def _then_wait(case: Case) -> Any:
    batch = _map(case, ["a", "b"], _capitals)
    case.context.wait(seconds(1))
    return batch.get_results()


@requirement("9-18")
def _with_failure_then_wait(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=1)
    batch = _map(case, ["ok", fail], _each, completion=completion)
    case.context.wait(seconds(1))
    return told(batch)


@requirement("9-19")
def _serdes(case: Case) -> Any:
    return _map(
        case, ["x", "y"], _capitals, serdes=_Joined(), item_serdes=JsonSerDes()
    ).get_results()


@requirement("9-20")
def _serdes_then_wait(case: Case) -> Any:
    batch = _map(case, ["x", "y"], _capitals, serdes=_Joined(), item_serdes=JsonSerDes())
    case.context.wait(seconds(1))
    return batch.get_results()
