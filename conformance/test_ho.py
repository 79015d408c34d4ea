"""HO: gradients of higher order."""
