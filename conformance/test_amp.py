"""AMP: autocast."""
