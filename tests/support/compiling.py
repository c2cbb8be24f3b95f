"""A beginning of a program that counts the sources which its imports compile."""

from __future__ import annotations

from typing import Final

COUNT_COMPILED: Final = """
from importlib.machinery import SourceFileLoader
compiled, to_code = [], SourceFileLoader.source_to_code
def counted(loader, data, path, **options):
    compiled.append(path)
    return to_code(loader, data, path, **options)
SourceFileLoader.source_to_code = counted
"""
