"""One session's actor: its mailbox, its commands, and what is done first after a crash."""
