"""Costs in few bits: the fields that can differ between solutions of one question, as wide as needed.

Most costs of a question then fit a machine word, which is what makes vector operations on them fast; where
they do not, the same operations run on Python's integers, slower and with the same results.
"""

from collections.abc import Sequence

WORD = 61
"""Bits that a cost may have in a machine word, so that the sum of two and "unreachable" still fit."""


class PackedCost:
    """Some fields of a wide cost (see costs.Costs), the most important first, in their real widths."""

    def __init__(self, fields: Sequence[tuple[int, int, int]]) -> None:
        """fields: (shift in the wide cost, bits there, bits needed)."""
        self.parts: list[tuple[int, int, int]] = []
        self.bits = 0
        for shift, wide, width in reversed(fields):
            self.parts.append((shift, (1 << wide) - 1, self.bits))
            self.bits += width
        self.fits = self.bits <= WORD
        self._known: dict[int, int] = {}

    def pack(self, cost: int) -> int:
        """The fields of a wide cost."""
        found = self._known.get(cost)
        if found is None:
            found = sum((cost >> shift & mask) << to for shift, mask, to in self.parts)
            self._known[cost] = found
        return found

    def offset(self, shift: int) -> int:
        """Bits of the fields less important than the one with this shift in a wide cost; all without it."""
        return next((to for known, _, to in self.parts if known == shift), self.bits)

    def unpack(self, packed: int) -> int:
        """A wide cost of these fields alone."""
        total = 0
        for shift, _, to in reversed(self.parts):  # the most important first: what is left is below
            total += (packed >> to) << shift
            packed &= (1 << to) - 1
        return total
