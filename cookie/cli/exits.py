"""The exit codes of the command line (spec 1.1)."""

from typing import Final

COMPLETED: Final = 0
FAILED: Final = 1
USAGE_ERROR: Final = 2
PERMISSION: Final = 3
CANCELLED: Final = 4
SETUP: Final = 5
BUDGET: Final = 6
