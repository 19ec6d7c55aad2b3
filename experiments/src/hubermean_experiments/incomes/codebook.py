"""The DDI codebook of an IPUMS extract, read by `ipumspy`, and the codes for missing values.

An income that does not apply to a person is written as nines over the width of the variable, one that is missing as
nines that end in an eight: 9999999 and 9999998 for INCTOT of IPUMS USA, 999999 and 999998 for its INCWAGE, two digits
more in IPUMS CPS, and other widths in older extracts. A codebook states the width. Without one it is inferred from the
data, because a code is the largest number that fits: see `codes_in`.
"""

from __future__ import annotations

import gzip
import os
import re
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubermean.errors import InputError
from hubermean_experiments.incomes.records import INSTALL

if TYPE_CHECKING:
    import pyarrow as pa

# Widths in current and older extracts of IPUMS USA, CPS and International; other variables may have any of all widths.
_WIDTHS = {"INCTOT": (7, 8, 9), "INCWAGE": (6, 7, 8)}
_ALL_WIDTHS = (5, 6, 7, 8, 9)
_NO_VALUE = re.compile(
    r"\b(n/a|n\.?i\.?u|not in universe|not applicable|missing|unknown|blank)\b", re.IGNORECASE
)
_BLOCK_ROWS = 500_000
_BROKEN = (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError, SyntaxError)


def codes_of_width(width: int) -> frozenset[float]:
    """The codes for a missing value in a variable of this many digits."""
    return frozenset((10.0**width - 1, 10.0**width - 2))


def codes_in(variable: str, largest: float) -> frozenset[float]:
    """The codes for a missing value in a column of unknown width, from its largest number.

    The codes of the widest format that occurs, and of no other: 999999 is a code where no number is larger, and
    a wage where 99999999 or a wage of a million says that the column is wider.
    """
    for width in _WIDTHS.get(variable.upper(), _ALL_WIDTHS):
        if largest in codes_of_width(width):
            return codes_of_width(width)
    return frozenset()


class ExtractCodebook:
    """The DDI codebook of an extract: its variables, their codes and its data file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(
                f"there is no codebook {self.path}; give the .xml file that came with the extract"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a request to cite IPUMS, which `license` contains
            try:
                from ipumspy import readers
            except ImportError:
                raise InputError(
                    f"an IPUMS codebook needs the package ipumspy; install it with {INSTALL}"
                ) from None
            try:
                self._codebook = readers.read_ipums_ddi(self.path)
            except (*_BROKEN, NotImplementedError):
                raise InputError(
                    f"{self.path} is not a DDI codebook of IPUMS; download it again, as .xml"
                ) from None
        if self._codebook.file_description.structure != "rectangular":
            raise InputError(
                f"{self.path} describes a hierarchical extract; ask IPUMS for a rectangular one, by person"
            )

    @property
    def names(self) -> list[str]:
        """The names of the variables."""
        return [described.name for described in self._codebook.data_description]

    @property
    def collection(self) -> str:
        """The IPUMS collection, such as USA or CPS."""
        return str(self._codebook.ipums_collection).upper()

    @property
    def identifier(self) -> str:
        """The DOI of the collection, or an empty string."""
        return str(self._codebook.ipums_doi or "").strip()

    def label(self, name: str) -> str:
        """The label of a variable."""
        return str(self._variable(name).label or name).strip()

    def codes(self, name: str) -> frozenset[float]:
        """The codes for a missing value: those of the width, and those that the codebook labels so."""
        described = self._variable(name)
        unit = 10.0 ** (described.shift or 0)
        labeled = (
            float(code)
            for label, code in described.codes.items()
            if isinstance(code, int) and _NO_VALUE.search(label or "")
        )
        return frozenset(code / unit for code in (*codes_of_width(described.end - described.start), *labeled))

    def data_file(self) -> Path:
        """The data file next to the codebook, under the stated name or that of another format."""
        named = Path(str(self._codebook.file_description.filename)).name
        stem = named.removesuffix(".gz").rsplit(".", 1)[0]
        others = (f"{stem}{kind}" for kind in (".dat.gz", ".dat", ".csv.gz", ".csv", ".parquet"))
        for name in (named, f"{named}.gz", *others):
            if (self.path.parent / name).is_file():
                return self.path.parent / name
        raise InputError(
            f"there is no data file {named} next to {self.path}; put it there, or give its path, with the codebook "
            "as ddi"
        )

    def fixed_width(self, path: str | os.PathLike[str], names: Sequence[str]) -> pa.Table:
        """Read variables of a fixed-width data file as text."""
        import pyarrow as pa
        from ipumspy import readers

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._check_lengths(Path(path))
                blocks = readers.read_microdata_chunked(
                    self._codebook,
                    filename=Path(path),
                    subset=list(names),
                    chunksize=_BLOCK_ROWS,
                    # As text: one record that is not a number must not change the type of the others.
                    dtype=dict.fromkeys(names, "string"),
                )
                return pa.concat_tables(
                    [pa.Table.from_pandas(block, preserve_index=False) for block in blocks]
                )
            except InputError:
                raise
            except _BROKEN:
                raise InputError(
                    f"{path} cannot be read to the end by its codebook {self.path}; download both again"
                ) from None

    def _check_lengths(self, path: Path) -> None:
        """Refuse lines of another length: they belong to another codebook or are truncated, and would be misread."""
        length = max(described.end for described in self._codebook.data_description)
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as lines:
            if any(len(line.rstrip(b"\r\n")) != length for line in lines if line.strip()):
                raise InputError(
                    f"the lines of {path} do not have the length that its codebook {self.path} states; give the "
                    "codebook of this extract, or download both again"
                )

    def _variable(self, name: str) -> Any:
        for described in self._codebook.data_description:
            if described.name.upper() == name.upper():
                return described
        raise InputError(f"{self.path} does not describe {name}; give the codebook of this extract")
