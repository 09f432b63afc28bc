"""A module to mutate."""

from enum import Enum

from attrs import evolve, field, frozen


class Light(Enum):
    """Three members, so that the next of the last is the first."""

    RED = 1
    AMBER = 2
    GREEN = 3


@frozen
class Pair:
    """Two numbers."""

    left: int = 0
    right: int = field(default=0)

    @property
    def low(self) -> bool:
        """A property, to be mutated in its class."""
        return self.left < 3


def decide(pair: Pair, light: Light) -> Pair:
    """Has a place for every operator."""
    if light is Light.GREEN and pair.left <= 3:
        return evolve(pair, left=pair.left + 1, right=min(pair.right, 7))
    return pair if light is Light.RED or not pair.low else evolve(pair, right=0)


def flag() -> bool:
    """A constant."""
    return True
