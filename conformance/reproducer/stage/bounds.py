"""For any other fault: a program is run plain, twice, then checkpointed, and what happens is noted in `now`."""

import types
from collections import Counter


class under_test:
    run = run
    attempt = attempt
    phase = now.phase
    checkpoint = now.checkpoint
    held = now.ledger.held


def run(program, *primals, plain=None, backward=None, replays=None):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(plain or program, plainly, primals, backward=backward)
    first = now  # if .plain replays
    observe(program, CHECKPOINTED, primals, backward=backward)
    now.plain = first  # if .plain
    found = max(n - first.backward[p] for p, n in [(0, 0), *now.backward.items()])  # if replays
    assert found >= (replays or 1), f"no replay was seen in backward: {found} executions"  # if replays
    return now  # if now


def attempt(program, *primals, plain=None, backward=None):
    """Run the program plain, twice, then checkpointed; what was seen in the last run, also its exception."""
    for _ in range(2):
        observe(plain or program, plainly, primals, backward=backward)
    try:
        observe(program, CHECKPOINTED, primals, backward=backward)
    except BaseException as error:
        now.error = error
    return now


def observe(program, checkpoint, primals, *, backward=None):
    global now  # if now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)  # if now
    now.forward, now.backward = Counter(), Counter()  # if Probe ProbeOperator
    now.ledger, now.held = Ledger(), types.SimpleNamespace()  # if .held
    seed(20180101)  # if seed
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.held.after_forward = now.ledger.held()  # if .after_forward
    now.phase = "backward"  # if now
    gradients = backward(pull) if backward else pull()  # if .gradients .after_backward
    backward(pull) if backward else pull()  # unless .gradients .after_backward
    now.gradients = arrays(gradients)  # if .gradients
    del pull, gradients  # if .after_backward
    now.held.after_backward = now.ledger.held()  # if .after_backward
    now.ledger.end()  # if .held
