"""A user's project that tests its own code: docs/testing.md as it stands, against the wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_AN_EMULATOR = "test_processes.py"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the document."""
    home = tmp_path_factory.mktemp("project")
    for name, text in FILES.findall((ROOT / "docs" / "testing.md").read_text()):
        (home / name).write_text(text)
    return home


def run_pytest(project: Path, installed: Path, *arguments: str) -> str:
    """What pytest says of the project, where this wheel is what `fairlock` is."""
    surroundings = {name: text for name, text in os.environ.items() if "AWS_" not in name}
    finished = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env={**surroundings, "PYTHONPATH": str(installed), "PYTEST_ADDOPTS": ""},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return finished.stdout + finished.stderr


def test_the_examples_pass_and_fail_if_the_code_under_test_ignores_its_lock(
    project: Path, installed: Path
) -> None:
    """The control is a copy of the tests over code that goes on without the lock."""
    careless = (project / "billing.py").read_text()
    for line in ("                lock.check()\n", "    except LockWaitTimeout:\n"):
        assert line in careless
    careless = careless.replace("lock.check()", "pass")
    (project / "careless.py").write_text(careless)
    tests = (project / "test_billing.py").read_text().replace("from billing", "from careless")
    (project / "test_careless.py").write_text(tests)
    output = run_pytest(project, installed, f"--ignore={WITH_AN_EMULATOR}")
    failed = re.findall(r"^FAILED (\S+)", output, re.MULTILINE)
    assert failed == ["test_careless.py::test_nothing_is_charged_after_a_loss"], output
    assert "1 failed, 16 passed" in output, output


@pytest.mark.skipif("FAIRLOCK_EMULATOR" not in os.environ, reason="`make examples` sets it")
def test_the_example_with_an_emulator_passes(project: Path, installed: Path) -> None:
    output = run_pytest(project, installed, WITH_AN_EMULATOR)
    assert "1 passed" in output, output
