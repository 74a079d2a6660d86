"""The built-in tools: what a model may ask for, and what each of them does in the world."""

from typing import Final

from workers.tools.base import Tool, tool_table
from workers.tools.bash import Bash
from workers.tools.edit import Edit
from workers.tools.read import Read
from workers.tools.write import Write

# The order is the one models are offered them in, so it is part of every prompt's prefix: a new
# tool goes to the end.
TOOLS: Final[dict[str, type[Tool]]] = tool_table((Read, Write, Edit, Bash))
