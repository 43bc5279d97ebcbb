"""Cells of a table of parameters, chosen so that few tests hold each two values together."""

from itertools import combinations, product


def pairs(*axes):
    """Return cells of the product of `axes`, in its order, such that any values of two axes are in one of them.

    Each next cell is the first of those with the most new pairs.
    """
    cells = list(product(*map(list, axes)))
    new = {cell: set(combinations(enumerate(cell), 2)) for cell in cells}
    chosen = set()
    while best := max(new.values(), key=len):
        cell = next(one for one in cells if new[one] is best)
        chosen.add(cell)
        covered = set(best)
        for left in new.values():
            left -= covered
    return [cell for cell in cells if cell in chosen]
