"""What can be set when this repository is deployed, as CDK context: `cdk deploy -c name=value`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Node

_FLAGS: Final = {"true": True, "false": False}
_ANYWHERE: Final = {**_FLAGS, "default": None}
_CHOICES: Final[Mapping[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("demo", "durable", "administration"), _FLAGS),
    **dict.fromkeys(("lifecycle_events", "pace", "deletion_protection"), _FLAGS),
    **dict.fromkeys(("tracing", "recursive_loop"), _ANYWHERE),
    "removal_policy": {
        "retain": RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        "destroy": RemovalPolicy.DESTROY,
    },
    "log_retention": {
        "1": logs.RetentionDays.ONE_DAY,
        "7": logs.RetentionDays.ONE_WEEK,
        "14": logs.RetentionDays.TWO_WEEKS,
        "30": logs.RetentionDays.ONE_MONTH,
        "90": logs.RetentionDays.THREE_MONTHS,
        "365": logs.RetentionDays.ONE_YEAR,
    },
    "log_level": {level: level for level in ("DEBUG", "INFO", "WARNING", "ERROR")},
    "architecture": {"arm64": "arm64", "x86_64": "x86_64", "default": None},
}
"""What may be chosen for each setting."""
_CONTEXT: Final = {"log_retention": "log_retention_days"}


class SettingError(ValueError):
    """A context value is none of the values of its setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one deployment, those of `LockService`; None is the default."""

    demo: bool = False
    durable: bool = False
    administration: bool = False
    lifecycle_events: bool = False
    pace: bool = False
    removal_policy: RemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
    deletion_protection: bool = False
    log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH
    log_level: str = "INFO"
    memory_size_mib: int = 256
    tracing: bool | None = None
    architecture: str | None = None
    recursive_loop: bool | None = None
    table_name: str | None = None

    @classmethod
    def from_context(cls, node: Node) -> Settings:
        """Reads the settings by their names; `log_retention` from `log_retention_days`."""
        chosen: dict[str, Any] = {}
        for field in fields(cls):
            name = _CONTEXT.get(field.name, field.name)
            given = node.try_get_context(name)
            if given is not None:
                chosen[field.name] = _checked(field.name, name, given)
        return cls(**chosen)


SETTINGS: Final = {_CONTEXT.get(each.name, each.name) for each in fields(Settings)}
"""The names of all settings, as context has them."""

_MOST_DIGITS: Final = 9


def _checked(setting: str, name: str, given: Any) -> Any:  # noqa: ANN401 - of any setting
    text = str(given)
    if setting == "memory_size_mib":
        # Python reads other alphabets' digits too, and refuses to read thousands of them.
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
            raise SettingError(f"-c {name}={text}: must be a whole number")
        return int(text)
    if setting not in _CHOICES:
        return given  # The service checks it.
    known = {choice.lower(): value for choice, value in _CHOICES[setting].items()}
    if text.lower() not in known:
        raise SettingError(f"-c {name}={text}: must be one of {', '.join(_CHOICES[setting])}")
    return known[text.lower()]
