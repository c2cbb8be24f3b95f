"""`Hold`: what `LockClient.hold` returns, for a `with` statement and for nothing else."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from fairlock.client.arguments import refuse

if TYPE_CHECKING:
    from fairlock.client.lock import Lock

_ENTERED_TWICE: Final = "must be entered once; call `hold` again for another block"


class BaseHold:
    """A block that has not begun: no lock is held, and nothing was sent.

    Args:
        name: of the lock.
        statement: what the user should have written.
    """

    def __init__(self, name: str, *, statement: str) -> None:
        self._was_entered = False
        self._name = name
        self._statement = statement

    def _enter_once(self) -> None:
        if self._was_entered:
            refuse("hold", _ENTERED_TWICE, self)
        self._was_entered = True

    def _advice(self) -> str:
        return f"write `{self._statement} locks.hold({self._name!r}) as lock:`"

    def __del__(self) -> None:
        """Points out a block that never began: the work after it had no lock."""
        if not getattr(self, "_was_entered", True):
            message = f"lock {self._name!r} was never acquired: {self._advice()}"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    if not TYPE_CHECKING:  # For type checkers it has no other attributes.

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it never returns
            """Tells who takes this for the lock itself what to write."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                message += f": it is no lock yet; {self._advice()} and use `lock.{name}`"
            raise AttributeError(message)


class Hold(BaseHold):
    """`with locks.hold("orders/7") as lock:` acquires, runs the body, releases."""

    def __init__(self, name: str, block: AbstractContextManager[Lock]) -> None:
        super().__init__(name, statement="with")
        self._block = block

    def __enter__(self) -> Lock:
        """Acquires the lock, as `LockClient.acquire` does."""
        self._enter_once()
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases the lock; see `LockClient.hold`."""
        self._block.__exit__(kind, error, traceback)
