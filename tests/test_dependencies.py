"""What pyproject.toml declares, against what the code imports and what Ray requires."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = {canonicalize_name(r.name): r for r in map(Requirement, PROJECT["dependencies"])}
OPTIONAL = {canonicalize_name(Requirement(line).name) for line in PROJECT["optional-dependencies"]["plots"]}
ADAPTERS = {"lightning": "lightning", "hugging_face": "transformers"}  # what a module in trainables/adapters/ is for
PROVIDERS = packages_distributions()
SOURCES = sorted(path for package in ("search", "trainables") for path in (ROOT / package).rglob("*.py"))


def distributions_of(module: str) -> set[str]:
    """Canonical names of the distributions that provide the top-level module; empty for the standard library."""
    if module in sys.stdlib_module_names or module in ("search", "trainables"):
        return set()
    return set(map(canonicalize_name, PROVIDERS.get(module, [module])))


def imported_modules(tree: ast.AST, *, lazy: bool = False) -> Iterator[tuple[str, bool]]:
    """Top-level names that the code imports; True marks an import in a function or for type checks only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0], lazy
        deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        yield from imported_modules(node, lazy=lazy or deferred)


def test_each_imported_package_is_declared() -> None:
    """The optional packages may be imported in functions and for type checks only."""
    undeclared = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in SOURCES
        for module, lazy in imported_modules(ast.parse(path.read_text()))
        if (wanted := distributions_of(module))
        and not wanted & (DECLARED.keys() | (OPTIONAL if lazy else set()))
        and not (path.parent.name == "adapters" and module == ADAPTERS[path.stem])
    ]
    assert not undeclared


def lower_bound(requirement: Requirement) -> Version:
    bounds = [Version(each.version) for each in requirement.specifier if each.operator in (">=", "==", "~=", ">")]
    return max(bounds, default=Version("0"))


def test_no_lower_bound_is_below_that_of_ray() -> None:
    extras = DECLARED[canonicalize_name("ray")].extras
    required = [
        each
        for each in map(Requirement, requires("ray") or [])
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
    ]
    lower = {
        str(each): str(DECLARED[name])
        for each in required
        if (name := canonicalize_name(each.name)) in DECLARED and lower_bound(DECLARED[name]) < lower_bound(each)
    }
    assert not lower
