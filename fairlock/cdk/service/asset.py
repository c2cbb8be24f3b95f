"""Assembles the directory that becomes the Lambda asset: no Docker, no network, no compiler.

It has the handlers, the modules of this package and the distributions that they import, as they are
installed here, and `licenses/`. The same sources and versions give the same asset hash, in a
checkout, an editable install and a wheel.

Byte code may stand beside the modules: Lambda's /var/task is read-only, so what is not compiled in
the asset is compiled at each cold start. Python uses it for its own minor version and the same
source text only, so it changes nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from fairlock.text import extra_missing

DISTRIBUTIONS: Final = ("aws-lambda-powertools", "typing-extensions")
"""All pure Python. boto3 comes with the Lambda runtime, and jmespath with boto3. Of
typing-extensions the whole: /var/task comes before the layers of a function, which may need it."""
OLDEST: Final = {"aws-lambda-powertools": (3, 30)}
"""The reaper hands its logger to Powertools' `BatchProcessor`, which takes one from 3.30.0 on."""

_UNUSED: Final = (
    "aws_lambda_powertools/event_handler/",
    *(
        f"aws_lambda_powertools/utilities/{name}/"
        for name in (
            *("auth_alpha", "circuit_breaker", "data_masking", "feature_flags", "idempotency"),
            *("kafka", "parameters", "parser", "streaming", "validation"),
        )
    ),
)
"""Large sub-packages that the handlers do not import, nor do the other parts of Powertools."""

_FOR_HANDLERS: Final = (
    *("__init__.py", "errors.py", "clock.py", "backoff.py", "names.py", "text.py"),
    *("protocol/", "wire/", "aws/", "store/"),
)
_NOT_FOR_HANDLERS: Final = frozenset({"protocol/versions.py"})
"""Modules of those packages that only clients and constructs import."""

_LICENSES: Final = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
_COMPILED: Final = frozenset({".so", ".pyd", ".dll", ".dylib"})
_DIRECTORY: Final = "fairlock-handlers"

Files = Mapping[PurePosixPath, bytes]
"""The content of each file of a directory, by its path there."""


class AssetError(Exception):
    """The asset cannot be assembled from what is installed."""


def assemble(parent: Path) -> Path:
    """Writes the asset below `parent`, once for its content, and removes its older versions.

    Raises:
        AssetError: a distribution is missing, or too old for the handlers, or has compiled code in
            it, which would run on the machine that runs synth and not on Lambda.
    """
    files = _files()
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    root = parent / _DIRECTORY
    target = root / digest.hexdigest()[:32]
    if not target.exists():
        root.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=root))
        _write(unfinished, files)
        unfinished.chmod(0o755)
        unfinished.replace(target)
    for other in root.iterdir():
        if other != target:
            shutil.rmtree(other, ignore_errors=True)
    return target


def _files() -> Files:
    found = dict(_own_sources())
    for name in DISTRIBUTIONS:
        found.update(_distribution_sources(name))
    compiled = sorted(str(path) for path in found if path.suffix in _COMPILED)
    if compiled:
        raise AssetError(f"compiled code cannot go into the asset: {', '.join(compiled)}")
    return {path: source.read_bytes() for path, source in sorted(found.items())}


def _own_sources() -> Iterator[tuple[PurePosixPath, Path]]:
    package = Path(__file__).resolve().parents[2]
    installed = package / "_lambdas"
    handlers = installed if installed.is_dir() else package.parent / "lambdas"
    yield from _python_files(handlers, PurePosixPath("lambdas"))
    for path, source in _python_files(package, PurePosixPath()):
        if str(path).startswith(_FOR_HANDLERS) and str(path) not in _NOT_FOR_HANDLERS:
            yield package.name / path, source


def _python_files(directory: Path, name: PurePosixPath) -> Iterator[tuple[PurePosixPath, Path]]:
    for source in directory.rglob("*.py"):
        yield name / source.relative_to(directory).as_posix(), source


def _distribution_sources(name: str) -> Iterator[tuple[PurePosixPath, Path]]:
    try:
        found = distribution(name)
    except PackageNotFoundError as error:
        message = extra_missing(f"the functions' asset needs {name}", extra="cdk")
        raise AssetError(message) from error
    oldest = OLDEST.get(name, ())
    if tuple(map(int, re.findall(r"\d+", found.version)[: len(oldest)])) < oldest:
        needed = ".".join(map(str, oldest))
        raise AssetError(f"{name} {found.version} is too old: install {name}>={needed}")
    modules = 0
    for file in found.files or []:
        path, source = PurePosixPath(file.as_posix()), Path(str(file.locate()))
        if path.parts[0].endswith(".dist-info") and path.name.startswith(_LICENSES):
            yield PurePosixPath("licenses", name, path.name), source
        elif path.suffix in {".py", *_COMPILED} and not str(path).startswith(("..", *_UNUSED)):
            modules += 1
            yield path, source
    if not modules:
        raise AssetError(
            f"{name} is installed without its files (editable?): install it from a wheel"
        )


_ON_LAMBDA: Final = "/var/task"
_MOST_SECONDS: Final = 30
"""For all modules; without byte code a cold start is longer, and a synth must not hang."""

_COMPILE: Final = (
    *("-I", "-S", "-m", "compileall", "-q"),
    # Paths in tracebacks are those on Lambda. So the bytes do not depend on a directory here.
    *("-d", _ON_LAMBDA),
    # By the content: CDK's zip sets all times to 1980. `unchecked-hash` (PEP 552) would not notice
    # a source that was changed in Lambda's console.
    *("--invalidation-mode", "checked-hash"),
)

NamedSources = tuple[tuple[str, bytes], ...]
"""Path and content of each module."""


def add_byte_code(asset: Path, runtime: str) -> None:
    """Compiles every module of a directory for a runtime, if its Python is on this machine.

    Without that Python, or if a module cannot be compiled by it, the directory stays as it is. All
    modules are compiled before the first byte is written, and each file appears as a whole: two
    processes may do this at once, and what one that dies has left out the next call adds.
    """
    tag = runtime.replace("python", "cpython-").replace(".", "")
    modules = [path.relative_to(asset).as_posix() for path in sorted(asset.rglob("*.py"))]
    # This Python if it is the runtime's, otherwise what has the runtime's name on the PATH.
    is_own = sys.implementation.cache_tag == tag
    python = sys.executable if is_own else shutil.which(runtime)
    if python is None or all((asset / byte_code_path(each, tag)).exists() for each in modules):
        return
    sources = tuple((each, (asset / each).read_bytes()) for each in modules)
    with suppress(OSError):
        _write(asset, _compiled(python, tag, sources))


def byte_code_path(module: str, tag: str) -> PurePosixPath:
    """Where Python looks for the byte code of a module."""
    source = PurePosixPath(module)
    return source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"


@lru_cache(maxsize=1)
def _compiled(python: str, tag: str, sources: NamedSources) -> Files:
    """The byte code of all modules, or nothing; cached, as tests synthesize many apps.

    Raises:
        OSError: what has this name cannot be run, or is no Python of this version.
    """
    paths = [byte_code_path(module, tag) for module, _ in sources]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        _write(home, {PurePosixPath(module): content for module, content in sources})
        try:
            subprocess.run(  # noqa: S603 - a Python of this user's PATH
                [python, *_COMPILE, directory],
                check=True,
                timeout=_MOST_SECONDS,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # No pipe: a child of a launcher could hold it open.
                stderr=subprocess.DEVNULL,
            )
        except subprocess.SubprocessError:
            return {}
        return {path: (home / path).read_bytes() for path in paths}


def _write(target: Path, files: Files) -> None:
    """Writes each file under another name beside the target, and moves it to its place."""
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        for path, content in files.items():
            unfinished = Path(directory, path.name)
            unfinished.write_bytes(content)
            unfinished.chmod(0o644)  # Lambda reads it as another user, whatever the umask here.
            (target / path.parent).mkdir(parents=True, exist_ok=True)
            os.replace(unfinished, target / path)  # noqa: PTH105
