"""DEV: device state."""
