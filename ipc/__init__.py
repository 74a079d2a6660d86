"""What two processes of cookie must agree on: words, their meaning and dress, the disk layout."""

# Not marked Final: `cookie run` starts its worker before it imports typing, and comes by here.
VERSION = "0.1.0"  # that of pyproject.toml; a test compares them
BUILD = f"cookie.py/{VERSION}"  # what a worker says it was made from
