"""A strategy for Flower: federated averaging that is private for whole clients and survives poisoned ones.

    from hubermean.flower import PrivateFedAvg

It needs `pip install hubermean[flower]`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hubermean.flower.strategy import PrivateFedAvg

__all__ = ["PrivateFedAvg"]


def __getattr__(name: str) -> Any:
    """Import the strategy when it is used, and say what is missing where Flower is not installed."""
    if name not in __all__:
        raise AttributeError(f"module 'hubermean.flower' has no attribute {name!r}")
    try:
        from hubermean.flower.strategy import PrivateFedAvg
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "flwr":
            raise
        raise ImportError(
            "Flower is not installed, or older than 1.41: pip install 'hubermean[flower]'"
        ) from None
    return PrivateFedAvg
