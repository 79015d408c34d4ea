"""FUZZ-06 on torch 2.13.0+cpu, non-reentrant: a wrong gradient.

Specified: Whatever a policy saves, values and gradients of any program with random operations are those of the plain
run.
Observed: [1]: [0, 0, 0] plain, [2, 0, 0] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        def region1(n5, v2, v3, v4):
            v3 = v3[0]
            v6 = torch.clone(v4)
            v7 = astype(b, "float32")
            v8 = torch.sum(v3, axis=0)
            v9 = astype(v6, "float32")
            v10 = b[1:]
            def region11(v12):
                v12 = v12["key"]
                v13 = torch.clone(v12)
                v14 = torch.sum(v13, axis=0)
                v15 = torch.multiply(v7, torch.rand_like(v7))
                v16 = torch.square(v9)
                return {"k": v16, "l": v15, "m": v14}
            [v17, v18, v19] = checkpoint(region11, {"key": v9}, context_fn=saving(['exp', 'cos', 'add'])).values()
            v20 = torch.rand_like(v19)
            def region21():
                v22 = torch.clone(v19)
                v23 = torch.multiply(v19, torch.rand_like(v19))
                v24 = torch.nn.functional.dropout(v10, 0.5)
                v25 = torch.nn.functional.dropout(v3, 0.5)
                return v25
            v26 = checkpoint(region21, context_fn=saving(['exp', 'matmul', 'reshape', 'uniform_like']))
            return [v26, v17, v20]
        [v27, v28, v29] = checkpoint(
            region1, 2, c, [b], c, context_fn=saving(['exp', 'cos', 'tanh', 'add', 'uniform_like'])
        )
        return a, v28, v27, v29,

    primals = (
        torch.tensor([-0.7, -0.38, -0.06, 0.26, 0.58, 0.9], dtype=torch.float64).reshape(2, 3),
        torch.tensor([-0.65, 0.15, 0.95], dtype=torch.float64),
        torch.tensor([-0.6, -0.28, 0.04, 0.36, 0.68, 1.0], dtype=torch.float64).reshape(3, 2),
    )
    run(program, *primals, tolerance=0.0001)

def run(program, *primals, tolerance):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals)
    observed = results(program, CHECKPOINTED, primals)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [is_near(e, o, tolerance) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def is_near(expected, observed, tolerance):
    """Whether they differ by no more than this, relative to the largest element."""
    return np.allclose(observed, expected, tolerance, tolerance * np.abs(expected).max(initial=0), equal_nan=True)

def results(program, checkpoint, primals):
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    return value, arrays(pull())

def checkpoint(function, *args, **kwargs):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]

def astype(x, dtype):
    return x.to(getattr(torch, dtype))

def saving(names):
    """Contexts that save the results of these operations."""
    return lambda: torch.utils.checkpoint.create_selective_checkpoint_contexts([OPERATORS[name] for name in names])

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
OPERATORS = {
    "matmul": torch.ops.aten.mm.default, "cos": torch.ops.aten.cos.default, "exp": torch.ops.aten.exp.default,
    "tanh": torch.ops.aten.tanh.default, "add": torch.ops.aten.add.Tensor,
    "uniform_like": torch.ops.aten.rand_like.default, "reshape": torch.ops.aten.view.default
}
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
