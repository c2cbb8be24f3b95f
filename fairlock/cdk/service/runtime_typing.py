"""Becomes `typing_extensions.py` of the Lambda asset: what Powertools imports of it.

The functions' Python has all of it. The distribution itself is compiled at each cold start, which
takes a tenth of its CPU time.
"""

from __future__ import annotations

import sys
from typing import NotRequired, TypeVar

if sys.version_info >= (3, 13):
    from typing import override
    from warnings import deprecated
else:  # Not on Lambda: tests run the handlers with older versions, too.
    _T = TypeVar("_T")

    def override(function: _T) -> _T:
        """Does nothing."""
        return function

    def deprecated(_message: str, **_options: object) -> object:
        """Does nothing."""
        return override


__all__ = ["NotRequired", "deprecated", "override"]
