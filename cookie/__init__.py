"""What a person starts: command line, daemon, configuration and model catalogue."""
