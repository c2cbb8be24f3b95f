"""Assembles the directory that becomes the Lambda asset: no Docker, no network, no compiler.

    lambdas/                 the handlers
    fairlock/               the modules of this package that the handlers import
    aws_lambda_powertools/…  the distributions that the handlers import, as they are installed here
    licenses/                the licences of those distributions

The same sources and versions give the same bytes, so the same asset hash, in a checkout, an
editable install and a wheel.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from fairlock.cdk.service import runtime_typing

DISTRIBUTIONS: Final = ("aws-lambda-powertools",)
"""All pure Python. boto3 comes with the Lambda runtime, and jmespath with boto3."""
_TYPING: Final = "typing-extensions"
_IMPORTED_TYPING: Final = re.compile(r"typing_extensions(?: import ([\w, ]+)$)?", re.MULTILINE)
"""What a source imports from that distribution; the group is missing if it is written otherwise."""

OLDEST: Final = {"aws-lambda-powertools": (3, 30)}
"""The reaper hands its logger to Powertools' `BatchProcessor`, which takes one from 3.30.0 on."""

_UNUSED: Final = (
    "aws_lambda_powertools/event_handler/",
    *(
        f"aws_lambda_powertools/utilities/{name}/"
        for name in (
            "auth_alpha",
            "circuit_breaker",
            "data_masking",
            "feature_flags",
            "idempotency",
            "kafka",
            "parameters",
            "parser",
            "streaming",
            "validation",
        )
    ),
)
"""Large sub-packages that the handlers do not import, nor do the other parts of Powertools."""

_FOR_HANDLERS: Final = (
    *("__init__.py", "errors.py", "clock.py", "backoff.py", "metrics.py", "text.py"),
    *("protocol/", "store/", "dynamodb/", "workflows/", "wire/"),
)
_NOT_FOR_HANDLERS: Final = frozenset(
    {
        "dynamodb/create_table.py",
        "dynamodb/versioned_item.py",
        "protocol/condition_check.py",
        "protocol/versions.py",
    }
)
"""Modules of those packages that only clients and constructs import."""

_LICENSES: Final = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
_COMPILED: Final = frozenset({".so", ".pyd", ".dll", ".dylib"})
_DIRECTORY: Final = "fairlock-handlers"

Sources = Mapping[PurePosixPath, Path]
"""Where each file of the asset comes from, by its path in the asset."""


class AssetError(Exception):
    """The asset cannot be assembled from what is installed."""


def assemble(parent: Path) -> Path:
    """Writes the asset below `parent`, once for its content, and removes its older versions.

    Raises:
        AssetError: a distribution is missing, or too old for the handlers, or has compiled code in
            it, which would run on the machine that runs synth and not on Lambda.
    """
    sources = asset_sources()
    root = parent / _DIRECTORY
    target = root / _content_hash(sources)
    if not target.exists():
        root.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=root))
        _copy(sources, unfinished)
        unfinished.chmod(0o755)
        unfinished.replace(target)
    for other in root.iterdir():
        if other != target:
            shutil.rmtree(other, ignore_errors=True)
    return target


def asset_sources() -> Sources:
    """Every file of the asset."""
    found = dict(_own_sources())
    for name in DISTRIBUTIONS:
        found.update(_distribution_sources(name))
    found.update(_typing_sources(found))
    compiled = sorted(str(path) for path in found if path.suffix in _COMPILED)
    if compiled:
        raise AssetError(f"compiled code cannot go into the asset: {', '.join(compiled)}")
    return dict(sorted(found.items()))


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
    """The modules and the licence of an installed distribution, without scripts and metadata."""
    try:
        found = distribution(name)
    except PackageNotFoundError as error:
        raise AssetError(
            f"{name} is not installed: it comes with Fairlock's extra 'cdk'"
        ) from error
    _check_age(name, found.version)
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


def _typing_sources(others: Sources) -> Iterator[tuple[PurePosixPath, Path]]:
    """What the other sources import from typing_extensions: the few lines of `runtime_typing.py`.

    If a version of Powertools imports more, the distribution takes their place.
    """
    wanted = {
        name.strip()
        for source in others.values()
        for names in _IMPORTED_TYPING.findall(source.read_text(encoding="utf-8"))
        for name in (names or "*").split(",")
    }
    if wanted <= set(runtime_typing.__all__):
        yield PurePosixPath("typing_extensions.py"), Path(runtime_typing.__file__)
    else:
        yield from _distribution_sources(_TYPING)


def _check_age(name: str, version: str) -> None:
    oldest = OLDEST.get(name, ())
    if tuple(int(number) for number in re.findall(r"\d+", version)[: len(oldest)]) < oldest:
        needed = ".".join(map(str, oldest))
        raise AssetError(f"{name} {version} is too old: install {name}>={needed}")


def _content_hash(sources: Sources) -> str:
    digest = hashlib.sha256()
    for path, source in sources.items():
        content = hashlib.sha256(source.read_bytes()).hexdigest()
        digest.update(f"{path}\0{content}\n".encode())
    return digest.hexdigest()[:32]


def _copy(sources: Sources, target: Path) -> None:
    for path, source in sources.items():
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        copy.chmod(0o644)  # Lambda reads the files as another user, whatever the umask here
