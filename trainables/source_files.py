"""Files of a user's training: the file itself and those beside it that it imports; their digest and their packages."""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import keyword
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from trainables.declared import DeclarationError, parsed

OWN_PACKAGES = ("search", "trainables")


def imported_files(path: Path) -> list[Path]:
    """Return the file and the Python files in its folder that it imports, directly or through each other, sorted."""
    found, waiting = {path}, [path]
    while waiting:
        file = waiting.pop()
        for name in _imports(file, path.parent):
            for other in _files_of(name, path.parent):
                if other not in found:
                    found.add(other)
                    waiting.append(other)
    return sorted(found)


def imported_packages(path: Path) -> dict[str, str]:
    """Return the versions of the packages that these files import, by name; without the standard library."""
    files = imported_files(path)
    tops = {name.partition(".")[0] for file in files for name in _imports(file, path.parent)}
    others = tops - set(sys.stdlib_module_names) - set(OWN_PACKAGES) - {file.stem for file in files}
    versions = {}
    for name in sorted(others):
        for package in (name, *_distributions().get(name, ())):
            try:
                versions[package] = metadata.version(package)
                break
            except metadata.PackageNotFoundError:
                continue
    return versions


def digest_of(path: Path) -> str:
    """Return the first 16 digits of sha256 over names and contents of `imported_files`."""
    digest = hashlib.sha256()
    for file in imported_files(path):
        digest.update(file.relative_to(path.parent).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def check_module_name(path: Path) -> None:
    """Check that the file can be imported by its stem, and hides no other module.

    Raises:
        DeclarationError: it cannot, or does.
    """
    name = path.stem
    if not name.isidentifier() or keyword.iskeyword(name):
        raise DeclarationError(f'{path}: "{name}" is no name of a module; rename the file')
    if name in sys.stdlib_module_names or name in OWN_PACKAGES or _is_elsewhere(name, path):
        raise DeclarationError(f'{path}: hides the module "{name}"; rename the file')


def _is_elsewhere(name: str, path: Path) -> bool:
    places = [place for place in sys.path if Path(place or ".").absolute() != path.parent]
    spec = importlib.machinery.PathFinder.find_spec(name, places)
    # a folder without Python files is found as a namespace package, which a file goes before
    return spec is not None and spec.origin is not None and "site-packages" in spec.origin


def _imports(file: Path, folder: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports; relative ones as names from `folder`."""
    package = file.relative_to(folder).parent.parts
    for node in ast.walk(parsed(file)):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                start = package[: len(package) - level + 1] if level else ()
                base = ".".join((*start, *([module] if module else [])))
                yield from filter(None, (base, *(f"{base}.{alias.name}".lstrip(".") for alias in aliases)))


def _files_of(name: str, folder: Path) -> Iterator[Path]:
    """Yield the files in `folder` that the import of a dotted name runs."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:count])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                yield file


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: list(found) for name, found in metadata.packages_distributions().items()}
