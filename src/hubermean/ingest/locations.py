"""Remote storage: the files that a URI names, and how they are opened.

Remote storage is read through the file systems of Arrow. A URI may hold credentials (`s3://key:secret@bucket/...`), so
only `without_credentials` is ever shown or written down.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from hubermean.errors import InputError

if TYPE_CHECKING:
    import pyarrow.fs as pafs

REMOTE = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
"""Schemes of the URIs that Arrow's file systems read."""
_MAGIC = re.compile(r"[*\[]")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]*\]|[^\[\]:]*)(?::[0-9]*)?")
"""A host or bucket, and a port. Anything else after a colon may be a password."""
_OPTIONS = re.compile(r"\w+=[^&]*(?:&\w+=[^&]*)*")
_COPY_BYTES = 1 << 22
_RETRY_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Location:
    """Existing files in remote storage.

    Attributes:
        paths: paths within the file system.
        filesystem: the file system.
        root: what stands before the paths where they are shown, such as "s3://".
    """

    paths: tuple[str, ...]
    filesystem: pafs.FileSystem
    root: str


def is_remote(text: str) -> bool:
    """Whether a text is the URI of remote storage."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.lower() in REMOTE


def without_credentials(text: str) -> str:
    """Return a path as it is, and a URI without user, password and options.

    >>> without_credentials("s3://key:secret@bucket/trips.parquet?region=eu-west-1")
    's3://bucket/trips.parquet'

    Where it is not certain what is a secret, only the scheme is left:

    >>> without_credentials("postgresql://bob:se?cret@host/trips")
    'postgresql://'
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    return f"{scheme}://{_find_place(scheme, rest) or ''}"


def require_clear(text: str) -> None:
    """Raise InputError where a URI does not say for certain what is its password: it would have no name."""
    scheme, separator, rest = text.partition("://")
    if separator and _find_place(scheme, rest) is None:
        raise InputError(
            f"the address that begins with {scheme}:// cannot be read; write ? and @ in a user, a password or an "
            "option as %3F and %40, and a port as a number"
        )


def _find_place(scheme: str, rest: str) -> str | None:
    """Return what follows the user and password of a URI; None where that is not certain."""
    place, _, options = rest.partition("?")
    if scheme.partition("+")[0].lower() in ("sqlite", "file"):
        return place
    shown = place.rpartition("@")[2]  # a secret may contain a slash, and even an @
    hosts = shown.partition("/")[0].split(",")
    options_are_clear = "@" not in options or ("/" in shown and _OPTIONS.fullmatch(options))
    return shown if options_are_clear and all(map(_HOST.fullmatch, hosts)) else None


def open_filesystem(text: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a URI, and the path within it."""
    import pyarrow.fs as pafs

    plain, mark, options = text.partition("?")
    if plain.lower().startswith(("gs://", "gcs://")) and "retry_limit_seconds" not in options:
        # By default a quarter of an hour where there are no credentials.
        options, mark = f"{options}{'&' if options else ''}retry_limit_seconds={_RETRY_SECONDS}", "?"
    filesystem, path = pafs.FileSystem.from_uri(f"{plain}{mark}{options}")
    return filesystem, path


def open_location(path: str, filesystem: pafs.FileSystem | None) -> IO[bytes]:
    """Open a file for reading, local or remote, as the bytes that are stored."""
    if filesystem is None:
        return open(path, "rb")
    return cast(IO[bytes], filesystem.open_input_file(path))


def copy_files(paths: Sequence[str], filesystem: pafs.FileSystem, folder: str) -> tuple[str, ...]:
    """Copy remote files into a local folder and return the paths of the copies, with the same endings."""
    copies = []
    for number, path in enumerate(paths):
        name = re.sub(r"[^A-Za-z0-9.]", "_", path.rpartition("/")[2])
        copies.append(os.path.join(folder, f"{number}-{name}"))
        with filesystem.open_input_stream(path, compression=None) as source, open(copies[-1], "wb") as copy:
            shutil.copyfileobj(source, copy, _COPY_BYTES)
    return tuple(copies)


@contextlib.contextmanager
def mask_storage_errors(shown: str) -> Iterator[None]:
    """Raise InputError in place of the errors of a storage, which may quote credentials."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, TypeError, NotImplementedError, pa.ArrowException):
        pass
    else:
        return
    if shown.lower().startswith(("hdfs://", "viewfs://")):
        raise InputError(
            f"{shown} cannot be opened; install the Hadoop client, set JAVA_HOME, HADOOP_HOME and CLASSPATH, and check "
            "the name; or copy the files to this machine"
        )
    raise InputError(
        f"{shown} cannot be opened; check the name, the region or endpoint, and the credentials in your environment"
    )


def find_remote_files(text: str) -> Location:
    """Return the files that the URI of remote storage names; InputError if there are none."""
    if not is_remote(text):
        raise InputError(
            f"{without_credentials(text)} is neither a local path nor on s3://, gs://, hdfs:// or abfs://; copy it to "
            "this machine, or pass a data frame"
        )
    import pyarrow.fs as pafs

    require_clear(text)
    shown = without_credentials(text)
    scheme = text.partition("://")[0].lower()
    root = f"{scheme}://"
    plain, mark, options = text.partition("?")
    magic = _MAGIC.search(plain, plain.find("://") + 3)
    base, pattern = (plain, "") if magic is None else _split_pattern(plain, magic.start())
    with mask_storage_errors(shown):
        filesystem, path = open_filesystem(f"{base}{mark}{options}")
        if magic is None:
            (info,) = filesystem.get_file_info([path])
            found = [info]
        else:
            path = path.rstrip("/")
            selector = pafs.FileSelector(path, recursive="/" in pattern or "**" in pattern)
            wanted = re.compile(_glob_pattern(f"{glob.escape(path)}/{pattern}"))
            found = [one for one in filesystem.get_file_info(selector) if wanted.fullmatch(one.path)]
        files = sorted(one.path for one in found if one.type == pafs.FileType.File)
        folders = [one for one in found if one.type == pafs.FileType.Directory]
    if magic is None and folders:
        raise InputError(
            f"{shown} is a folder; name its files with a pattern such as {shown.rstrip('/')}/*.parquet"
        )
    if not files:
        raise InputError(f"there is no file {shown}; check the path")
    if scheme in ("hdfs", "viewfs"):
        root += urlsplit(shown).netloc
    return Location(paths=tuple(files), filesystem=filesystem, root=root)


def _split_pattern(plain: str, magic: int) -> tuple[str, str]:
    """Split a URI at the last folder whose name holds no pattern."""
    slash = plain.rfind("/", 0, magic)
    return plain[: slash + 1], plain[slash + 1 :]


def _glob_pattern(pattern: str) -> str:
    """Return the regular expression of a glob; `**` stands for any number of folders."""
    pieces = re.split(r"(\*\*/|\*\*|\*|\[[^\]]*\])", pattern)
    special: dict[str, str] = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}

    def translate(piece: str) -> str:
        if piece in special:
            return special[piece]
        if re.fullmatch(r"\[[^\]]+\]", piece):
            return "[" + re.sub(r"^!", "^", piece[1:-1]).replace("\\", "\\\\") + "]"
        return re.escape(piece)

    return "".join(map(translate, pieces))


def is_table_folder(text: str, marker: str) -> bool:
    """Whether a local or remote folder holds a folder of that name, by which a format of tables is known."""
    if not is_remote(text):
        return os.path.isdir(os.path.join(text.removeprefix("file://"), marker))
    import pyarrow.fs as pafs

    plain = text.partition("?")[0]
    if _MAGIC.search(plain, plain.find("://") + 3) or re.search(r"\.\w{2,8}$", plain):
        return False
    found: Any = None
    with contextlib.suppress(OSError, ValueError, NotImplementedError):
        filesystem, path = open_filesystem(text)
        (found,) = filesystem.get_file_info([f"{path.rstrip('/')}/{marker}"])
    return found is not None and found.type == pafs.FileType.Directory
