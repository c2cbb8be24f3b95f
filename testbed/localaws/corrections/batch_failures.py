"""What a function says about a batch of messages decides which of them come again.

AWS (Lambda developer guide, "Handling errors for an SQS event source in Lambda", Implementing
partial batch responses): with ReportBatchItemFailures the messages named in batchItemFailures come
again and the others are deleted; nothing, null or an empty list means that all are done. An
identifier that is null, empty or not of this batch, a wrong key and an answer of another form mean
that the whole batch failed.

Emulator: takes the identifiers it can use and deletes everything else, so a function that names its
failures wrongly loses them.

This: decides by those rules. The pause of a second after an error stays the emulator's.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

from ministack.services import lambda_svc, sqs

_log = logging.getLogger("localaws")


def apply() -> None:
    """Replace what happens to a batch."""
    lambda_svc._run_sqs_batch = _run_batch


def _run_batch(
    mapping: dict[str, Any],
    function: Any,
    event: Any,
    batch: Sequence[dict[str, Any]],
    *queue: str,
) -> None:
    queue_url, queue_name = queue
    result = lambda_svc._execute_function(function, event)
    every = frozenset(message["id"] for message in batch)
    if result.get("error"):
        failed = every
    elif "ReportBatchItemFailures" in mapping.get("FunctionResponseTypes", ()):
        failed = failed_ids(result.get("body"), every)
    else:
        failed = frozenset()
    _note(mapping, queue_name, result, f"{len(every) - len(failed)} of {len(every)} done")
    if result.get("error"):
        paused_until = time.time() + lambda_svc._ESM_BACKOFF_SECONDS
        lambda_svc._esm_backoff_until[mapping["UUID"]] = paused_until
        return
    lambda_svc._esm_backoff_until.pop(mapping["UUID"], None)
    handles = {message["receipt_handle"] for message in batch if message["id"] not in failed}
    sqs._delete_messages_for_esm(queue_url, handles)


def failed_ids(answer: Any, every: frozenset[str]) -> frozenset[str]:
    """Which messages a function's answer leaves undone."""
    if answer is None:
        return frozenset()
    if not isinstance(answer, dict):
        return every
    failures = answer.get("batchItemFailures") or []
    if not isinstance(failures, list) or not all(isinstance(item, dict) for item in failures):
        return every
    named = [item.get("itemIdentifier") for item in failures]
    return frozenset(named) if all(name in every for name in map(str, named)) else every


def _note(mapping: dict[str, Any], queue_name: str, result: dict[str, Any], outcome: str) -> None:
    mapping["LastProcessingResult"] = "FAILED" if result.get("error") else f"OK - {outcome}"
    failure = f", error {result.get('body')}" if result.get("error") else ""
    _log.info(
        "batch of %s for %s: %s%s\n%s",
        queue_name,
        mapping["FunctionName"],
        outcome,
        failure,
        result.get("log", ""),
    )
