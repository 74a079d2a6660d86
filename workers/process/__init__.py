"""One worker process: its birth, the rooms it builds, the orders it serves, its end."""
