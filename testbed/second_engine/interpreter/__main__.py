"""Serves LocalStack's Step Functions on a socket that the starting process has bound.

python -m testbed.second_engine.interpreter SOCKET_FD FIRST_ENGINE_URL NODE_MODULES
"""

import os
import sys
import threading
import types
from pathlib import Path
from typing import BinaryIO

_NOT_INSTALLED = "localstack.services.stepfunctions.packages"
"""Downloads a JVM library for JSONata, which is replaced here."""


def _serve(socket_fd: int, first_engine_url: str, node_modules: Path) -> None:
    packages = types.ModuleType(_NOT_INSTALLED)
    vars(packages)["jpype_jsonata_package"] = None
    sys.modules[_NOT_INSTALLED] = packages

    # These read the environment, and the module above, when they are imported.
    from localstack.aws.app import LocalstackAwsGateway  # noqa: PLC0415
    from rolo.gateway.wsgi import WsgiGateway  # noqa: PLC0415
    from werkzeug.serving import make_server  # noqa: PLC0415

    from testbed.second_engine.interpreter import jsonata, other_services, repairs  # noqa: PLC0415

    other_services.answer_from(first_engine_url)
    jsonata.evaluate_with_node(node_modules)
    repairs.apply()
    gateway = WsgiGateway(LocalstackAwsGateway())
    make_server("127.0.0.1", 0, gateway, threaded=True, fd=socket_fd).serve_forever()


def _end_with(pipe: BinaryIO) -> None:
    """End this process when the one that started it is gone: no one writes to the pipe."""
    pipe.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    os.environ.update({"DISABLE_EVENTS": "1", "DNS_ADDRESS": "0", "ACTIVATE_PRO": "0"})
    _serve(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
