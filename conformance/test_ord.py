"""ORD: order and scale."""
