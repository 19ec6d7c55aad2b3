"""The parts of the benchmark, which can be measured one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from federated.training import Setting

HOSTILE = (0.0, 0.1, 0.2, 0.4)
IMAGE_PARTS = {
    f"{images.partition('-')[0].lower()}-{model}-{split}": (images, model, split)
    for images, model, split in itertools.product(
        ("MNIST", "Fashion-MNIST"), ("softmax", "network"), ("iid", "two-shard")
    )
}
OTHER_PARTS = ("wages", "checks")


def settings_of(parts: Iterable[str], hostile: Sequence[float]) -> list[Setting]:
    return [
        Setting(images=images, model=model, split=split, hostile=share)
        for part in parts
        if part in IMAGE_PARTS
        for images, model, split in [IMAGE_PARTS[part]]
        for share in hostile
    ]
