"""VIEW: views as arguments and results."""
