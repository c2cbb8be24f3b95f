"""Makes the template of the lock stack deployable without the CDK's bootstrap stack.

Three things change; all resources keep their logical ids, so a stack that one template made can be
updated by the other:

* the code of the functions is in a bucket and under a prefix that parameters of the template name,
* nothing asks for the version of the bootstrap stack,
* the parameters that other stacks read are named after whatever name the stack is given.
"""

from __future__ import annotations

import copy
import json
from typing import Any, Final

Json = dict[str, Any]

_FUNCTION: Final = "AWS::Lambda::Function"
_SHARED_NAME: Final = "AWS::SSM::Parameter"
_OF_THE_CDK: Final = ("cdk-hnb659fds", "cdk-bootstrap", "aws:cdk:", "aws:asset:")
_PARAMETERS: Final = {
    "CodeBucket": {
        "Type": "String",
        "Description": "The bucket with the functions' code, in the region of the stack.",
    },
    "CodeKeyPrefix": {
        "Type": "String",
        "Default": "",
        "AllowedPattern": "^$|^.*/$",
        "ConstraintDescription": "must be empty or end with a slash",
        "Description": "What stands before the name of the code's file in the bucket.",
    },
}


class NotPortableError(Exception):
    """The template still needs something of the CDK."""


def portable(template: Json, *, stack_name: str, code_file: str) -> Json:
    """A copy of the template that takes the bucket and the prefix of `code_file` as parameters.

    Args:
        template: as the CDK synthesized it.
        stack_name: the name of the stack it was synthesized for.
        code_file: the name of the zip with the code of every function.

    Raises:
        NotPortableError: names what of the CDK would be left in the template.
    """
    made = copy.deepcopy(template)
    made.pop("Rules", None)
    others = {name: of for name, of in made.get("Parameters", {}).items() if name not in _BOOTSTRAP}
    made["Parameters"] = {**_PARAMETERS, **others}
    for resource in made["Resources"].values():
        resource.pop("Metadata", None)
        properties = resource.get("Properties", {})
        if resource["Type"] == _FUNCTION:
            properties["Code"] = {
                "S3Bucket": {"Ref": "CodeBucket"},
                "S3Key": {"Fn::Sub": f"${{CodeKeyPrefix}}{code_file}"},
            }
        elif resource["Type"] == _SHARED_NAME:
            properties["Name"] = _by_any_stack(properties["Name"], stack_name)
    _require_nothing_of_the_cdk(made, stack_name)
    return made


_BOOTSTRAP: Final = frozenset({"BootstrapVersion"})


def _by_any_stack(parameter_name: str, stack_name: str) -> Json:
    before, _, after = parameter_name.partition(f"/{stack_name}/")
    return {"Fn::Sub": f"{before}/${{AWS::StackName}}/{after}"}


def _require_nothing_of_the_cdk(template: Json, stack_name: str) -> None:
    text = json.dumps(template)
    found = [part for part in (*_OF_THE_CDK, f"/{stack_name}/") if part in text]
    if found:
        raise NotPortableError(f"the template still has {', '.join(found)} in it")
