"""torch's words where gradients come from `.backward()`, which reentrant forms need."""

import torch
from torch.utils._pytree import tree_leaves


def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]  # unless .int64
    xs = [x.clone().requires_grad_(x.is_floating_point()) for x in primals]  # if .int64
    every, xs = xs, [x for x in xs if x.requires_grad]  # if .int64
    value = tree_leaves(function(*xs))  # unless .int64
    value = tree_leaves(function(*every))  # if .int64

    def pull(outputs=None, retain=False):  # if backward=
        ys = [y for i, y in enumerate(value) if outputs is None or i in outputs]  # if outputs=
        ys = [y for y in ys if getattr(y, "requires_grad", False)]  # if outputs=
        ys = [y for y in value if getattr(y, "requires_grad", False)]  # unless outputs=
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys], retain_graph=retain)
        found = [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]
        for x in xs:
            x.grad = None
        return found

    def pull():  # unless backward=
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
        return [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]

    return value, pull
