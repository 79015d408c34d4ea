"""SEQ: a sequence in segments."""
