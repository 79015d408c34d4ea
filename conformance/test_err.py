"""ERR: errors."""
