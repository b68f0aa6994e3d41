"""Record of the executed lines that mention the GPU, in all processes and threads of a run of tests.

The modules are compiled with a call before each such statement: a trace function would miss the threads of autograd.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import io
import os
import re
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

FILE_VARIABLE = "EXECUTED_LINES"  # path of the file to which lines `module:number` are appended
PACKAGES = ("trainables", "search.execution")
WORDS = re.compile("cuda|nccl|stream|graph|nvml", re.IGNORECASE)
CALL = "__executed__"


def lines_of(tree: ast.Module, source: str) -> dict[int, ast.AST]:
    """Return the lines of code that mention the GPU, each with the innermost statement or lambda that holds it."""
    owner: dict[int, ast.AST] = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.stmt | ast.Lambda | ast.ExceptHandler):
            owner |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node)
    return {line: owner[line] for line in sorted(_mentions(source)) if line in owner and not _is_text(owner[line])}


def record() -> None:
    """Compile the modules of this process with the calls, if the environment asks for it."""
    if FILE_VARIABLE in os.environ:
        setattr(builtins, CALL, _executed)  # runpy gives a module's code other globals
        sys.meta_path.insert(0, _Finder())


class _Marking(ast.NodeTransformer):
    """Puts a call with its lines before each statement, and into each lambda, function and handler of an exception."""

    def __init__(self, module: str, lines: dict[int, ast.AST]) -> None:
        self._module = module
        self._lines: dict[int, list[int]] = {}
        for line, node in lines.items():
            self._lines.setdefault(id(node), []).append(line)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.generic_visit(node)
        if id(node) in self._lines:
            both = ast.Tuple([self._call(node), node.body], ast.Load())
            node.body = ast.Subscript(both, ast.Constant(1), ast.Load())
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, name, None), list):
                setattr(node, name, [each for old in statements for each in self._marked(old)])
        if isinstance(node, ast.FunctionDef | ast.ExceptHandler) and id(node) in self._lines:
            node.body.insert(int(_is_text(node.body[0])), ast.Expr(self._call(node)))
        return node

    def _marked(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.FunctionDef) or id(statement) not in self._lines:
            return [statement]
        return [ast.Expr(self._call(statement)), statement]

    def _call(self, node: ast.AST) -> ast.Call:
        numbers = [ast.Constant(line) for line in self._lines[id(node)]]
        return ast.Call(ast.Name(CALL, ast.Load()), [ast.Constant(self._module), *numbers], [])


class _Loader(importlib.machinery.SourceFileLoader):
    """Loader of a marked module."""

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        tree = ast.parse(source)
        marked = _Marking(fullname, lines_of(tree, source)).visit(tree)
        return compile(ast.fix_missing_locations(marked), self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finder that lets the modules of `PACKAGES` be loaded with marks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(PACKAGES):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


_before = set[str]()  # lines that this process has recorded


def _executed(module: str, *numbers: int) -> None:
    """Append the lines at once: a process may be killed."""
    if new := {f"{module}:{number}" for number in numbers} - _before:
        _before.update(new)
        with open(os.environ[FILE_VARIABLE], "a") as file:
            file.write("".join(f"{line}\n" for line in new))


def _mentions(source: str) -> set[int]:
    """Return the numbers of the lines that mention the GPU outside of comments."""
    found = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            lines = token.string.splitlines()
            found |= {number for number, line in enumerate(lines, token.start[0]) if WORDS.search(line)}
    return found


def _is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
