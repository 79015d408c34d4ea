"""How a stand-alone program says in the tape's words what a clause says; the form is that of conformance/reproducer."""

import gc
import weakref

import numpy as np
import tape
from tape import Node, Options, Variable

# A variant says what this is.
CHECKPOINTER = tape.tape_checkpointer(tape.TapeHost())


class array:
    given = Variable(np.array(VALUES, np.DTYPE))
    spaced = Variable(np.linspace(0.1, 0.9, SIZE, dtype=np.DTYPE))


class ops:
    anything_else = tape
    dropout = tape.dropout
    sum = tape.sum_
    abs = tape.absolute
    reshape = reshape
    astype = astype


class under_test:
    identity = tape.negative
    needs_gradient = needs_gradient
    stop_gradient = stop_gradient
    seed = seed


class handles:
    decorator = decorator_of


def seed(number):
    tape.tape.generator = np.random.default_rng(number)


def checkpoint(function, *args, **kwargs):
    options = {name: kwargs.pop(name) for name in OPTIONS & set(kwargs)}  # if OPTIONS
    return CHECKPOINTER.checkpoint(function, args, kwargs, options)  # if OPTIONS
    return CHECKPOINTER.checkpoint(function, args, kwargs, {})  # unless OPTIONS


def decorator_of(checkpoint, **options):
    return (lambda function: function) if checkpoint is plainly else CHECKPOINTER.decorator(options)


def leaves(structure):
    if isinstance(structure, dict | list | tuple):
        parts = structure.values() if isinstance(structure, dict) else structure
        return [leaf for part in parts for leaf in leaves(part)]
    return [structure] if isinstance(structure, Variable) else []


def vjp(function, *primals):
    xs = [Variable(x.values.copy(), Node()) for x in primals]
    value = leaves(function(*xs))

    def pull(outputs=None, inputs=None, retain=False):
        wanted = [x for i, x in enumerate(xs) if inputs is None or i in inputs]  # if inputs=
        wanted = xs  # unless inputs=
        ones = [Variable(np.ones_like(y.values)) for y in value]
        ones = [one if outputs is None or i in outputs else None for i, one in enumerate(ones)]  # if outputs=
        found = tape.backward(value, ones, [x.node for x in wanted], retain=retain)
        return [g or Variable(np.zeros_like(x.values)) for g, x in zip(found, wanted)]

    return value, pull


def arrays(structure):
    return [x.values.copy() for x in leaves(structure)]


def to_numpy(x):
    return x.values.copy()


class Probe:
    """An operation that returns what it is given, and counts how often it is executed."""

    def __init__(self, name=""):
        self.name = name
        self.executions = 0  # if .executions

    def __call__(self, x):
        return tape._probe(x, executed=self.executed)

    def executed(self):
        self.executions += 1  # if .executions
        getattr(now, now.phase)[self] += 1


ProbeOperator = Probe


def needs_gradient(x):
    return x.node is not None


def stop_gradient(x):
    return Variable(x.values)


def reshape(x, shape):
    return tape._reshape(x, shape=tuple(shape))


def astype(x, dtype):
    return tape._astype(x, dtype=np.dtype(dtype))


class Ledger:
    """Remembers, weakly, the values of every array that is made."""

    def __init__(self):
        self.made = {}
        tape.tape.observers = [self.shown]

    def shown(self, values):
        while isinstance(values.base, np.ndarray):
            values = values.base
        self.made[id(values)] = weakref.ref(values)

    def held(self):
        gc.collect()
        return sum(values.nbytes for found in self.made.values() if (values := found()) is not None)

    def end(self):
        tape.tape.observers = []
