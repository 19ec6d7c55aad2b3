"""The model beside the saved run: with the run's last average it is the model after a crash."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubermean.errors import InputError, parameter

_ROUND = "round\n"  # no name of an array of a model has a line break at its end


class SavedModel:
    """A file with the arrays that the clients were sent, and after how many rounds that was.

    It is replaced as a whole before the clients of a round are asked. A crash therefore leaves the model of the round
    that was going on, or of the one before it whose average the run has kept.
    """

    def __init__(self, state_file: str | os.PathLike[str] | None) -> None:
        self._path = None if state_file is None else Path(f"{os.path.abspath(state_file)}.model.npz")

    @property
    def is_kept(self) -> bool:
        """Whether there is a file."""
        return self._path is not None

    def save(self, rounds_done: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the file; what was there stays until all of the new one is on disk."""
        if self._path is None:
            return
        new = self._path.with_name(self._path.name + ".new")
        try:
            with open(new, "wb") as file:
                np.savez(file, **{_ROUND: np.array(rounds_done)}, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self._path)
            with contextlib.suppress(OSError, AttributeError):  # a folder cannot be opened everywhere
                folder = os.open(self._path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            raise InputError(
                f"the model cannot be saved beside {parameter('state_file')}: {type(error).__name__}; check the disk "
                "and the permissions"
            ) from None

    def load(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """Return the number of rounds and the arrays, or None if nothing was saved."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as saved:
                arrays = {name: saved[name] for name in saved.files}
            return int(arrays.pop(_ROUND)), arrays
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise InputError(
                f"the saved model {self._path.name} cannot be read: {type(error).__name__}; restore it"
            ) from None
