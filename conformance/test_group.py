"""GROUP: several backward calls that share their replays."""
