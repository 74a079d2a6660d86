"""The commands: each parses its arguments, calls one thing and shows the result."""
