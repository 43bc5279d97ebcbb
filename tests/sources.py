"""The sources of the layers, each of which is read and parsed once."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYERS = ["dstorm", "vol", "malt", "apps"]
MODULES = [file for layer in LAYERS for file in sorted((ROOT / layer).rglob("*.py"))]
text = functools.cache(Path.read_text)


def parsed(source):
    """All nodes of its syntax tree; the module is the first."""
    return list(ast.walk(ast.parse(source)))


@functools.cache
def nodes(file):
    """Those of a file."""
    return parsed(text(file))


def below(*folders):
    """The modules in these folders."""
    return [file for file in MODULES if any(file.is_relative_to(ROOT / folder) for folder in folders)]


def where(found_in, files=MODULES):
    """What found_in(file) finds in each of the files, by name, without those in which it finds nothing."""
    found = {str(file.relative_to(ROOT)): found_in(file) for file in files}
    return {file: some for file, some in found.items() if some}


def strings(some_nodes):
    """The strings among the nodes, each with its node; in those that are formatted, a gap stands for each value."""
    for node in some_nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in node.values), node
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node
