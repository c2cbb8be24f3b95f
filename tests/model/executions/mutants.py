"""Claims, looks and beats with one protection taken away, and the promise that then breaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from leasehold.protocol import claims
from leasehold.protocol.model import NotHeld, Released, ReleaseRequest
from leasehold.protocol.requests import Put
from leasehold.protocol.schema import FENCED
from leasehold.protocol.verdict import AlreadyHolder, judge
from leasehold.store import acquire as acquisition
from leasehold.store import claims as claiming
from leasehold.store import keep_alive as keeping
from leasehold.store import lock_store as store
from leasehold.store import reap as reaping
from leasehold.store import release as releasing
from leasehold.store.context import LockContext
from tests.model.contention.weakened import without
from tests.model.executions.actors import Beats
from tests.model.executions.scene import Promise, Scene
from tests.model.executions.scenes import (
    ANNA,
    CARE,
    CARE_THAT_FAILS,
    FIRST,
    REDRIVEN_IN_THAT_MOMENT,
    SECOND,
    ZITA,
)
from tests.model.explore import Explored, explore

_NOT_FENCED: Final = "attribute_not_exists(#fenced)"
_AS_SEEN: Final = "#revision = :seen"
_ON_RECORD: Final = "attribute_exists(#revision)"
_ALL_CLAIMS: Final = claims.claims_of
_IN_FLIGHT: Final = Scene(name="in flight", cast=(ANNA, FIRST, SECOND), stops=1)
_MAP: Final = Scene(
    name="a Map", cast=(ANNA, ZITA, FIRST, SECOND), arrived=("anna", "zita"), stops=1
)
_REDRIVEN: Final = replace(_IN_FLIGHT, redrives=1)
_KEPT_ALIVE: Final = Scene(name="kept alive", cast=(CARE, Beats(workflow=CARE, most=2)))
_WORK_FAILS: Final = Scene(
    name="the work fails", cast=(CARE_THAT_FAILS, Beats(workflow=CARE_THAT_FAILS, most=1))
)
_RELEASE_DIES: Final = Scene(
    name="a release dies", cast=(CARE, FIRST, SECOND), arrived=("anna",), stops=1, kills=1
)
_ONE_LOOK: Final = Scene(name="one look", cast=(ANNA, FIRST), stops=1)


def _release_that_marks_after_freeing(
    self: store.LockStore, request: ReleaseRequest
) -> Released | NotHeld:
    context: LockContext = self._context
    answer = releasing.release(context, request)
    task_token = claiming.end_claim(context, request, request.execution_arn or "")
    if task_token is not None:
        context.workflows.end_heartbeat(task_token, None)
    return answer


def _claims_whose_work_goes_on(execution_arn: str, *, before: claims.ReapStage) -> Any:  # noqa: ANN401 - a query
    query = _ALL_CLAIMS(execution_arn, before=before)
    names = {**query.names, "#ended": "ended"}
    return replace(query, names=names, only=f"attribute_not_exists(#ended) AND ({query.only})")


def _record_again_without_asking(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the maker
    transaction = claims.reacquire_after_redrive(*args, **kwargs)
    assert isinstance(transaction.other, Put)
    return replace(transaction, other=Put(item=transaction.other.item))


def _judge_all_grants_fresh(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the real one
    verdict = judge(*args, **kwargs)
    return replace(verdict, is_fresh=True) if isinstance(verdict, AlreadyHolder) else verdict


def _look_without_asking(_context: Any, ended: Any) -> Any:  # noqa: ANN401 - as the real one
    return reaping._SECOND_PASS if ended.second_pass else reaping._FIRST_PASS  # noqa: SLF001 - same


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneMutant:
    """A weaker protocol.

    Attributes:
        breaks: the promise that the search must find broken.
        scene: who shows it.
        patches: what is replaced: module or class, name, and by what.
    """

    breaks: Promise
    scene: Scene
    patches: tuple[tuple[ModuleType | type, str, Any], ...] = ()

    @property
    def looked_at(self) -> Scene:
        return replace(self.scene, promises=frozenset({self.breaks}))

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module, name, replacement in self.patches:
                stack.enter_context(patch.object(module, name, replacement))
            yield


def _weak(module: ModuleType, name: str, condition: str, **instead: str) -> tuple[Any, ...]:
    return module, name, without(condition, vars(module)[name], **instead)


SCENE_MUTANTS: Final[dict[str, SceneMutant]] = {
    "acquire makes no claim": SceneMutant(
        breaks=Promise.FREE,
        scene=_IN_FLIGHT,
        patches=((store, "register_claim", lambda _context, request: request),),
    ),
    "the waiters of the dead are not deleted first": SceneMutant(
        breaks=Promise.SKIPPED,
        scene=replace(_MAP, stopped_in_calls=False),
        patches=((reaping, "_stop_waiting", lambda _context, _claim: False),),
    ),
    "nobody looks whether a claim was written since Step Functions was asked": SceneMutant(
        breaks=Promise.SPARED,
        scene=_REDRIVEN,
        patches=(_weak(reaping, "fence_claim", _AS_SEEN, instead=_ON_RECORD),),
    ),
    "an acquire does not look whether its claim is fenced": SceneMutant(
        breaks=Promise.SPARED,
        scene=_REDRIVEN,
        patches=(_weak(claiming, "write_claim", _NOT_FENCED),),
    ),
    "a look does not ask whether the execution was redriven": SceneMutant(
        breaks=Promise.SPARED,
        scene=_REDRIVEN,
        patches=((reaping, "_choose_pass", _look_without_asking),),
    ),
    "a repeated acquire is told of its grant and writes nothing": SceneMutant(
        breaks=Promise.HARMED,
        scene=REDRIVEN_IN_THAT_MOMENT,
        patches=((acquisition, "judge", _judge_all_grants_fresh),),
    ),
    "claims whose work has ended are not looked at": SceneMutant(
        breaks=Promise.FREE,
        scene=_RELEASE_DIES,
        patches=((reaping, "claims_of", _claims_whose_work_goes_on),),
    ),
    "a release says that the work has ended after it has freed the lock": SceneMutant(
        breaks=Promise.FALSE_LOSS,
        scene=_KEPT_ALIVE,
        patches=((store.LockStore, "release", _release_that_marks_after_freeing),),
    ),
    "a beat takes a lock again that has no claim": SceneMutant(
        breaks=Promise.FREE,
        scene=_WORK_FAILS,
        patches=(
            (keeping, "is_fenced", lambda item: FENCED in item or not item),
            (keeping, "reacquire_after_redrive", _record_again_without_asking),
        ),
    ),
    "a beat does not look whether the work has ended": SceneMutant(
        breaks=Promise.FALSE_LOSS,
        scene=_KEPT_ALIVE,
        patches=((keeping, "has_ended", lambda _item: False),),
    ),
}
ONE_LOOK: Final = SceneMutant(breaks=Promise.FREE, scene=_ONE_LOOK)
"""No patch, but no second look."""


def explore_mutant(name: str) -> Explored:
    """The search that must find what is broken on purpose."""
    with SCENE_MUTANTS[name].applied():
        return explore(SCENE_MUTANTS[name].looked_at)


def explore_control(name: str) -> Explored:
    """The same search of the protocol as it is."""
    return explore(SCENE_MUTANTS[name].looked_at)
