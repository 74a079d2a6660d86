"""Which families of models a run will likely talk to, guessed before anything can be read properly.

The worker imports while the command does, and what speaks HTTP takes a quarter of a second to
import: too long to begin when the config has been read. So this looks at the words of the command
and at the lines of the config files, without a parser and with the imports of a bare interpreter.
A wrong guess costs time, never an answer.
"""

import os

LOOKED_AT_BYTES = 256 * 1024  # of each file; a longer one is guessed from its beginning

# As in `cookie.config.adaptors.HTTP`, which imports too much. Only a name of this list leaves here:
# what stands behind `adaptor =` in a file may be anything, and argument lists are public.
HTTP_ADAPTORS = (
    *("anthropic", "anthropic-compatible", "google-gemini"),
    *("openai-chat", "openai-compatible", "openai-responses"),
)


def adaptors(words: list[str]) -> list[str]:
    """The adaptors that speak HTTP and may be needed by `cookie <words>`, sorted."""
    wanted = _value(words, "-m", "--model")
    if wanted.startswith("rehearsal/"):
        return []
    data = _value(words, "--data-dir") or "~/.cookie-agent"
    found: dict[str, str] = {}
    for path in (os.path.expanduser(data) + "/config.toml", ".cookie-agent/config.toml"):  # noqa: PTH111
        found.update(in_text(_beginning(path)))
    provider = wanted.partition("/")[0]
    if provider:
        found = {provider: found.get(provider, "")}
    return sorted(set(found.values()) & set(HTTP_ADAPTORS))


def in_text(text: str) -> dict[str, str]:
    """The adaptor of each provider of a config file, as far as it is written as most write it."""
    found, owner = {}, ""
    for line in text.split("\n"):
        bare = line.strip()
        if bare.startswith("["):
            inside = bare.startswith("[providers.")
            owner = bare[len("[providers.") :].partition("]")[0].strip("\"'") if inside else ""
        elif owner and bare.startswith("adaptor"):
            name, _, value = bare.partition("=")
            if name.strip() == "adaptor":
                found[owner] = value.partition("#")[0].strip().strip("\"'")
    return found


def _value(words: list[str], *flags: str) -> str:
    """What the last of these flags says; "" where there is none."""
    found = ""
    for at, word in enumerate(words):
        for flag in flags:
            if word == flag and at + 1 < len(words):
                found = words[at + 1]
            elif word.startswith(f"{flag}="):
                found = word[len(flag) + 1 :]
            elif not flag.startswith("--") and word.startswith(flag) and word != flag:
                found = word[len(flag) :]
    return found


def _beginning(path: str) -> str:
    try:
        # Not blocking: a named pipe in its place must not hang the start.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        return os.read(fd, LOOKED_AT_BYTES).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
