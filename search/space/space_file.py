"""A YAML file and the `--set` overrides on it, as plain data that knows where each value was written."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scalarbool import ScalarBoolean

from search.limits import WIDEST
from search.space.faults import Fault, KeyPath, Place, Source, SpaceError, dotted, nearest, shown

OVERLAY = "without_gpu"  # the section whose settings hold where the machine has no GPU

MOST_BYTES = 2**20
MOST_VALUES = 20_000  # aliases multiply: a page of them can stand for more than there is memory
DEEPEST = 30

# A parameter is searched or fixed: to override one is to take it out of the other.
_TWIN = {"fixed": "parameters", "parameters": "fixed"}


def read(path: Path, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], Source]:
    """The content of a YAML file after the overrides (`a.b=value`), and where each value is from.

    YAML 1.2: `1e-5` is a number, `off` a word, and a key may be there once only. No objects are built.

    Raises:
        SpaceError: the file cannot be read or parsed, or an override cannot be applied to it.
    """
    reader = _Reader(lambda line: f"{path}:{line}")
    content = reader.plain(reader.parse(_text(path)))
    if not isinstance(content, dict):
        raise SpaceError(f"{path}:1: found {shown(content)}; a space file is a mapping: parameters, objectives, ...")
    for override in overrides:
        _apply(override, content, reader.places)
    return content, Source(f"{path}:1", reader.places)


def overridden(content: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Plain data after the overrides.

    Raises:
        SpaceError: an override cannot be applied.
    """
    result: dict[str, Any] = copy.deepcopy(dict(content))
    for override in overrides:
        _apply(override, result, {})
    return result


def merged(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the settings of `overlay` over it: sections are merged key by key, anything deeper is replaced."""
    result = dict(base)
    for section, twin in _TWIN.items():
        if isinstance(base.get(section), Mapping) and isinstance(overlay.get(twin), Mapping):
            result[section] = {key: value for key, value in base[section].items() if key not in overlay[twin]}
    for section, content in overlay.items():
        both = isinstance(content, Mapping) and isinstance(result.get(section), Mapping)
        result[section] = {**result[section], **content} if both else content
    return result


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise SpaceError(f"{path}: more than {MOST_BYTES:,} bytes; a space file is a page or two")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        beside = sorted(f"{file}" for file in path.parent.glob("*.yaml"))
        raise SpaceError(f"{path}: no such file{nearest(path, beside)}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SpaceError(f"{path}:{line}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise SpaceError(f"{path}: cannot be read: {error.strerror}") from None


class _Reader:
    """Parses one text, noting the place of each key and list item; `origin` names a line (1, 2, ...)."""

    def __init__(self, origin: Callable[[int], str], top: KeyPath = ()) -> None:
        self._origin = origin
        self._top = top
        self.places: dict[KeyPath, Place] = {}
        self._values = 0

    def parse(self, text: str) -> Any:
        """The text as ruamel's commented containers, which know their lines."""
        try:
            return YAML(typ="rt").load(text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = f"{error.problem or error.context}".partition(" with value ")[0]  # of a key that is there twice
            raise self._invalid(mark.line + 1 if mark else 1, problem) from None
        except ReaderError as error:
            raise self._invalid(text.count("\n", 0, error.position) + 1, error.reason) from None
        except (YAMLError, ValueError, RecursionError) as error:
            raise self._invalid(1, error) from None

    def plain(self, value: Any, path: KeyPath = (), line: int = 1) -> Any:
        """The same as dicts, lists and scalars."""
        self._values += 1
        if self._values > MOST_VALUES or len(path) > DEEPEST:
            how = f"deeper than {DEEPEST} levels" if len(path) > DEEPEST else f"more than {MOST_VALUES:,} values"
            raise self._invalid(line, f"{how}, aliases counted where they are used")
        where = Place(self._origin(line), dotted(self._top + path))
        self.places[self._top + path] = where
        if getattr(value, "tag", None) is not None and value.tag.value:
            raise _error(where, f"found the tag {value.tag.value}; a space file has plain values only")
        match value:
            case CommentedMap():
                for key in value:
                    if not isinstance(key, str):
                        raise _error(where, f'the key {key} is not a word; write "{key}"')
                lines = value.lc.data
                return {f"{k}": self.plain(v, (*path, f"{k}"), _line(lines, k, line)) for k, v in value.items()}
            case CommentedSeq():
                lines = value.lc.data
                return [self.plain(item, (*path, i), _line(lines, i, line)) for i, item in enumerate(value)]
            case ScalarBoolean():
                return bool(value)
            case None | bool():
                return value
            case int():
                if abs(value) >= WIDEST:
                    raise _error(where, "found a whole number of more than 64 bits")
                return int(value)
            case float():
                return float(value)
            case str():
                return str(value)
        raise _error(where, f"found a {type(value).__name__}; in quotes it would be a word")

    def _invalid(self, line: int, problem: Any) -> SpaceError:
        return _error(Place(self._origin(line), dotted(self._top)), f"not valid YAML: {problem}")


def _error(where: Place, message: str) -> SpaceError:
    return Source(where.origin).error(Fault((where.key,) if where.key else (), message))


def _line(lines: Mapping[Any, Sequence[int]] | None, key: Any, enclosing: int) -> int:
    """Line (1, 2, ...) of a key or item. What a merge (`<<`) brought in has none of its own."""
    return lines[key][0] + 1 if lines and key in lines else enclosing


def _apply(override: str, content: dict[str, Any], places: dict[KeyPath, Place]) -> None:
    """Do what `a.b=value` says, also where the overlay says otherwise: the command line has the last word."""
    origin = f"--set {override}"
    name, equals, text = override.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        raise SpaceError(f"{origin}: expected KEY=VALUE, as in --set budget.hours=0.5")
    reader = _Reader(lambda line: origin, path)
    value = reader.plain(reader.parse(text))
    _assign(content, path, value, origin)
    overlay = content.get(OVERLAY)
    if isinstance(overlay, dict) and path[0] != OVERLAY:
        _leave_twin(overlay, path)
        if _holds(overlay, path[:2]):
            _assign(overlay, path, value, origin)
    for stale in [p for p in places if p[: len(path)] == path or p[: len(path) + 1] == (OVERLAY, *path)]:
        del places[stale]
    for depth in range(1, len(path)):
        places.setdefault(path[:depth], Place(origin, dotted(path[:depth])))
    places.update(reader.places)


def _assign(content: dict[str, Any], path: tuple[str, ...], value: Any, origin: str) -> None:
    _leave_twin(content, path)
    for depth, part in enumerate(path[:-1], start=1):
        if content.get(part) is None:
            content[part] = {}
        content = content[part]
        if not isinstance(content, dict):
            raise SpaceError(f"{origin}: {dotted(path[:depth])} is {shown(content)}, without keys; set it whole")
    content[path[-1]] = value


def _leave_twin(content: dict[str, Any], path: tuple[str, ...]) -> None:
    """Naming a parameter under `fixed` takes it out of `parameters`, and the other way round."""
    twin = content.get(_TWIN.get(path[0], ""))
    if isinstance(twin, dict) and len(path) > 1:
        twin.pop(path[1], None)


def _holds(content: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if not isinstance(content, dict) or part not in content:
            return False
        content = content[part]
    return True
