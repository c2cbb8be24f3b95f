"""Case 9: Express workflows, polling, a limit of five, `on_timeout`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.smoke.account import Account
from tests.smoke.facts import held, most_inside, outputs
from tests.smoke.stack import POLLS_SECONDS

LIMIT = 5
SHARING = 7


def test_express_workflows_take_turns(account: Account, lock: str) -> None:
    """Decides whether a guard works in an Express workflow, which has no task tokens."""
    inputs = {"lock": lock, "seconds": 1}
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(account.workflows.run_express, "Express", inputs) for _ in range(2)]
        ends = [run.result() for run in runs]
    assert [end.status for end in ends] == ["SUCCEEDED"] * 2
    assert most_inside(end.output for end in ends) == 1
    assert account.workflows.held(lock) == 0


def test_a_limit_of_five_lets_five_in(account: Account, lock: str) -> None:
    """Decides whether a limit that JSONata computes arrives as a number, and holds."""
    inputs = {"lock": lock, "seconds": 3, "limit": LIMIT}
    executions = [account.workflows.start("Holds", inputs) for _ in range(SHARING)]
    most = most_inside(outputs(account, executions))
    account.tell(f"limit {LIMIT}: {most} of {SHARING} were inside at once")
    least = 2 if account.is_embedded else LIMIT  # a cold start may take as long as the work
    assert least <= most <= LIMIT


def test_polling_ends_on_time_and_goes_the_other_way(account: Account, lock: str) -> None:
    """Decides whether a polling guard leaves for `on_timeout` with its input, on time."""
    inputs = {"lock": lock, "seconds": 0}
    with held(account, lock) as release:
        execution = account.workflows.start("Polls", inputs)
        assert outputs(account, [execution]) == [{"later": inputs}]
        entered = account.workflows.timeline(execution).entered
        waited = entered("Guard: Give up") - entered("Guard: Enter")
        account.tell(f"polling, max_wait of {POLLS_SECONDS} s: gave up after {waited:.2f} s")
        assert POLLS_SECONDS <= waited < POLLS_SECONDS + account.sizes.delay_seconds
        release()
    [span] = outputs(account, [account.workflows.start("Polls", inputs)])
    assert span["began_ms"] <= span["ended_ms"]
