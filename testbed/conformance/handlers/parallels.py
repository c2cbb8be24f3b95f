"""Requirements 8-1 to 8-22: `parallel`. Branches run one after the other, but for 8-11."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from aws_durable_execution_sdk_python import BatchResult, DurableContext, ParallelBranch
from aws_durable_execution_sdk_python.config import CompletionConfig, NestingType, ParallelConfig
from aws_durable_execution_sdk_python.serdes import SerDes, SerDesContext

from testbed.conformance.handlers.case import WITHOUT_STATUS, Case, fail, requirement, seconds, told

Branch = Callable[[DurableContext], Any]


class _Wrapped(SerDes[Any]):
    """An envelope around each result of a branch."""

    def serialize(self, value: Any, _: SerDesContext) -> str:
        return json.dumps({"wrapped": value})

    def deserialize(self, data: str, _: SerDesContext) -> Any:
        return json.loads(data)["wrapped"]


def _returns(value: Any) -> Branch:
    return lambda _: value


def _step(value: Any) -> Branch:
    return lambda context: context.step(lambda _: value)


def _parallel(
    context: DurableContext,
    *branches: Branch | ParallelBranch[Any],
    name: str | None = None,
    completion: CompletionConfig | None = None,
    **more: Any,
) -> BatchResult[Any]:
    config = ParallelConfig(
        max_concurrency=1, completion_config=completion or CompletionConfig(), **more
    )
    return context.parallel(branches, name=name, config=config)


@requirement("8-1")
def _basic(case: Case) -> Any:
    batch = _parallel(case.context, _step("task-1"), _step("task-2"), name="parallel")
    return batch.get_results()


@requirement("8-2")
def _without_name(case: Case) -> Any:
    return _parallel(case.context, _returns("alpha"), _returns("beta")).get_results()


@requirement("8-3")
def _named_branches(case: Case) -> Any:
    branches: list[ParallelBranch[str]] = [
        ParallelBranch(func=_returns("one"), name="first"),
        ParallelBranch(func=_returns("two"), name="second"),
    ]
    return _parallel(case.context, *branches, name="named").get_results()


@requirement("8-4")
def _types(case: Case) -> Any:
    values: Sequence[Any] = ["hello", 42, {"k": "v"}]
    return _parallel(case.context, *map(_returns, values)).get_results()


@requirement("8-5")
def _no_branches(case: Case) -> Any:
    return _parallel(case.context).get_results()


@requirement("8-6")
def _fail_fast(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=0)
    branches = (_returns("ok"), fail, _returns("never"))
    return told(_parallel(case.context, *branches, completion=completion))


@requirement("8-7")
def _raised_again(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=0)
    _parallel(case.context, fail, _returns("never"), completion=completion).throw_if_error()


@requirement("8-8")
def _enough_succeed(case: Case) -> Any:
    completion = CompletionConfig(min_successful=2)
    batch = _parallel(case.context, *map(_returns, "abcd"), completion=completion)
    return told(batch, "completionReason", "successCount", "totalCount")


@requirement("8-9")
def _one_failure_is_tolerated(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=1)
    branches = (_returns("a"), fail, _returns("c"))
    return told(_parallel(case.context, *branches, completion=completion))


@requirement("8-10")
def _too_many_failures(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=1)
    batch = _parallel(case.context, fail, fail, _returns("c"), completion=completion)
    return told(batch, *WITHOUT_STATUS)


@requirement("8-11")
def _two_at_once(case: Case) -> Any:
    branches = [_returns("r0"), _returns("r1"), _returns("r2")]
    return case.context.parallel(branches, config=ParallelConfig(max_concurrency=2)).get_results()


@requirement("8-12")
def _flat(case: Case) -> Any:
    batch = _parallel(case.context, _step("fa"), _step("fb"), nesting_type=NestingType.FLAT)
    return batch.get_results()


@requirement("8-13")
def _too_large_a_share_fails(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_percentage=25)
    branches = (fail, fail, _returns("c"), _returns("d"))
    return told(_parallel(case.context, *branches, completion=completion), *WITHOUT_STATUS)


@requirement("8-14")
def _branch_waits(case: Case) -> Any:
    def waits(context: DurableContext) -> str:
        context.wait(seconds(2))
        return "b1"

    return _parallel(case.context, _step("b0"), waits).get_results()


@requirement("8-15")
def _serdes_of_branches(case: Case) -> Any:
    batch = _parallel(case.context, _returns("x"), _returns("y"), item_serdes=_Wrapped())
    return batch.get_results()


@requirement("8-16")
def _all_fail(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=3)
    return told(_parallel(case.context, fail, fail, fail, completion=completion))


@requirement("8-17")
def _not_enough_succeed(case: Case) -> Any:
    completion = CompletionConfig(min_successful=3)
    branches = (_returns("a"), fail, _returns("c"))
    return told(_parallel(case.context, *branches, completion=completion))


@requirement("8-18")
def _both_bounds(case: Case) -> Any:
    completion = CompletionConfig(min_successful=3, tolerated_failure_count=1)
    branches = (fail, fail, _returns("c"), _returns("d"))
    return told(_parallel(case.context, *branches, completion=completion), *WITHOUT_STATUS)


@requirement("8-19")
def _none_at_once(case: Case) -> Any:
    config = ParallelConfig(max_concurrency=0)
    return case.context.parallel([_returns("a"), _returns("b")], config=config).get_results()


@requirement("8-20")
def _accessors(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_count=1)
    batch = _parallel(case.context, _returns("a"), fail, _returns("c"), completion=completion)
    return {
        "hasFailure": batch.has_failure,
        "successCount": len(batch.succeeded()),
        "failureCount": len(batch.failed()),
        "errorCount": len(batch.get_errors()),
    }


@requirement("8-21")
def _nested(case: Case) -> Any:
    def inner(context: DurableContext) -> Any:
        return _parallel(context, _step("i1"), _step("i2")).get_results()

    return _parallel(case.context, inner).get_results()


@requirement("8-22")
def _share_just_tolerated(case: Case) -> Any:
    completion = CompletionConfig(tolerated_failure_percentage=25)
    return told(_parallel(case.context, fail, *map(_returns, "bcd"), completion=completion))
