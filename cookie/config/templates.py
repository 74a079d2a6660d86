"""Texts of a config file with `${...}` in them: which may stand where, and what they come to.

`${env:NAME}` is a variable of the environment, `${env:NAME:-text}` one with something in its place
when it is not set; `$$` is one `$`. Other names are left for whoever sends the text, if the place
allows them at all. What was read once is not read again.
"""

import re
from collections.abc import Container, Iterator, Mapping
from typing import Final

from ipc.faults import Fault

MASK: Final = "***"
_PART: Final = re.compile(r"\$\$|\$\{(?P<body>[^{}]*)\}|\$\{")
_ENV: Final = re.compile(r"env:(?P<name>[A-Z_][A-Z0-9_]*)(?::-(?P<instead>.*))?", re.DOTALL)
_LOOSE: Final = re.compile(r"\$?(?:\{|env:)?(?:env:)?(?P<name>[A-Z_][A-Z0-9_]*)\}?")


class BadTemplate(Fault):
    """A text whose `${...}` can't be read; the reason repeats nothing but names of variables."""

    code = "bad_template"

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)
        self.args = (reason,)


class NotSet(Fault):
    """A variable that a text needs is not in the environment, or is empty there."""

    code = "variable_not_set"

    def __init__(self, name: str, how: str) -> None:
        super().__init__(variable=name)
        self.variable = name
        self.args = (f"the environment variable {name} {how}",)


class Template:
    """One text, read; `names` are the variables of the environment that it asks for."""

    __slots__ = ("_parts", "names")

    def __init__(self, parts: list[tuple[str, str, str | None]]) -> None:
        self._parts = parts
        self.names = frozenset(text for kind, text, _ in parts if kind == "env")

    def __repr__(self) -> str:
        return f"Template({', '.join(sorted(self.names))})"

    def value(self, environ: Mapping[str, str], *, later: bool = False) -> str:
        """The text with its variables filled in; raises NotSet.

        `later`: somebody will read it again for the names that were left, so that a `$` of ours
        stays doubled.
        """
        dollar = "$$" if later else "$"
        done: list[str] = []
        for kind, text, instead in self._parts:
            if kind == "env":
                done.append(_variable(environ, text, instead).replace("$", dollar))
            elif kind == "left":
                done.append(f"${{{text}}}")
            else:
                done.append(dollar if kind == "dollar" else text)
        return "".join(done)

    def shown(self, *, secret: bool) -> str:
        """The text as anybody may see it: variables by name, and of a secret nothing else."""
        done: list[str] = []
        for kind, text, instead in self._parts:
            if kind == "env":
                done.append(f"${{env:{text}{'' if instead is None else f':-{MASK}'}}}")
            elif kind == "left":
                done.append(f"${{{text}}}")
            elif not secret:
                done.append("$$" if kind == "dollar" else text)
            elif not done or done[-1] != MASK:
                done.append(MASK)
        return "".join(done)


def read(text: str, left: Container[str] = ()) -> Template:
    """Read a text; `left` are the other names that the place allows. Raises BadTemplate."""
    return Template(list(_parts(text, left)))


def loose_variable(text: str) -> str | None:
    """The variable that somebody meant by `$NAME`, `${NAME}`, `env:NAME` and the like."""
    match = _LOOSE.fullmatch(text)
    return match["name"] if match is not None and text[:1] in {"$", "e"} else None


def _parts(text: str, left: Container[str]) -> Iterator[tuple[str, str, str | None]]:
    at = 0
    for match in _PART.finditer(text):
        if match.start() > at:
            yield "text", text[at : match.start()], None
        at = match.end()
        body = match["body"]
        if match.group() == "$$":
            yield "dollar", "$", None
        elif body is None:
            raise BadTemplate("a ${ is never closed; a plain $ is written $$")
        elif (env := _ENV.fullmatch(body)) is not None:
            yield "env", env["name"], env["instead"]
        elif body in left:
            yield "left", body, None
        elif body.startswith("env:"):
            raise BadTemplate("a variable is ${env:NAME}, its name in capitals, digits and _")
        else:
            raise BadTemplate(_unknown(left))
    if at < len(text):
        yield "text", text[at:], None


def _unknown(left: Container[str]) -> str:
    names = ["${env:NAME}"]
    if isinstance(left, tuple):
        names += [f"${{{name}}}" for name in left]
    return f"only {' and '.join(names)} can stand here; a plain $ is written $$"


def _variable(environ: Mapping[str, str], name: str, instead: str | None) -> str:
    value = environ.get(name)
    if value is None:
        if instead is None:
            raise NotSet(name, "is not set")
        return instead
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotSet(name, "is not UTF-8") from None
    return value
