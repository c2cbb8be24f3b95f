"""The process whose forks are execution environments: run as a script, imports none of ours.

It has the AWS SDK loaded, as Lambda's runtime has it installed. Each request comes with four
descriptors: standard input, output and error of the fork, and one that the fork holds open as long
as it lives. The answer is the fork's process id.
"""

import functools
import gc
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path
from typing import Any

LARGEST_REQUEST_BYTES = 1 << 17
_DESCRIPTORS = 4


def main() -> None:
    """Fork until the emulator closes its end."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    _load_the_sdk()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, LARGEST_REQUEST_BYTES, _DESCRIPTORS)
        if not request:
            return
        process_id = os.fork()
        if process_id == 0:
            channel.close()
            _become(json.loads(request), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(process_id).encode())


def _load_the_sdk() -> None:
    """All that the first client of a process loads; the models of services stay in memory."""
    import botocore.loaders  # noqa: PLC0415 - not in the process that imports this module
    import botocore.session  # noqa: PLC0415 - same

    load = functools.cache(botocore.loaders.JSONFileLoader().load_file)
    botocore.loaders.JSONFileLoader.load_file = staticmethod(load)  # type: ignore[method-assign]
    session = botocore.session.Session()
    for service in ("dynamodb", "stepfunctions", "lambda"):
        session.create_client(service, region_name="us-east-1")


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the script as an interpreter would that was started with these descriptors."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.set_inheritable(descriptors[3], False)  # noqa: FBT003 - os's
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww")
    )
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    script = Path(request["script"])
    sys.argv, sys.path[0] = [str(script)], str(script.parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
