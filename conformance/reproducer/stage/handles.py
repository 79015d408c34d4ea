"""The `checkpoint` of a plain run, and what clauses use besides: threads, warnings, references."""

import concurrent.futures
import contextlib
import gc
import sys
import threading
import types
import warnings
import weakref


class under_test:
    gradient = gradient_of
    differentiate = value_and_gradients
    compiled = compiled_function
    numpy = to_numpy
    in_threads = in_threads
    flag = threading.Event
    watch = watch
    warnings = recorded_warnings


plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint


def in_threads(*calls):
    """The results of calls at the same time, each in a thread of its own."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))


def value_and_gradients(function, *primals):
    value, pull = vjp(function, *primals)
    return value[0], tuple(pull())


def watch(thing):
    """A function that says whether the object is alive; reference counting alone must release it."""
    gc.disable()
    reference = weakref.ref(thing)
    return lambda: reference() is not None


@contextlib.contextmanager
def recorded_warnings():
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    found += [types.SimpleNamespace(text=str(w.message), is_at_call=w.filename == __file__) for w in caught]
