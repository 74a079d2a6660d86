"""The commands of a session, seen from the one table of methods."""

import pytest

from ipc.methods.table import METHODS
from workers.actor.commands import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_the_params_of_its_method(name: str) -> None:
    assert COMMANDS[name].params is METHODS[name].params
    assert METHODS[name].routed_by != "daemon" or name == "session.create"
