"""What is reported of the ranks of a job, as `kind-rank`: left-2, started-0."""

from malt.runner.events import Kind, Stream, append, event


def made(name, text="", at=None):
    """The event of that name, now, or `at` that time."""
    kind, _, rank = name.rpartition("-")
    one = event(Kind(kind), int(rank), text)
    return one if at is None else one._replace(at=at)


def add(folder, name, text="", at=None):
    """Report it, as the rank or the launcher would."""
    append(folder, made(name, text, at))


def reported(folder):
    """The texts of the events that count, by name."""
    stream = Stream(folder).read()
    return {f"{kind.value}-{rank}": text for kind in Kind for rank, text in stream.texts(kind).items()}


def sent(line):
    """The name and the text of a line."""
    _, kind, rank, text = line
    return f"{kind}-{rank}", text


def line(name, text=""):
    """The line that a rank on another host sends."""
    return made(name, text, 1).line()
