import math
from fractions import Fraction


def laplace_scale(epsilon: float, sensitivity: int) -> float:
    target = Fraction(sensitivity) / Fraction(epsilon)
    s = float(target)
    while Fraction(s) < target:
        s = math.nextafter(s, math.inf)
    return s


def discrete_gaussian_sigma(epsilon: float, delta: float, *, sensitivity: int, dimension: int) -> float:
    raise NotImplementedError
