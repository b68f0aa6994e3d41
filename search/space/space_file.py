"""YAML files and `--set` overrides as plain data, with the place where each value was written."""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scalarbool import ScalarBoolean

from search.limits import MAX_INTEGER
from search.space.validation import KeyPath, Place, Problem, Source, SpaceError, dotted_key
from trainables.setting_check import did_you_mean, format_value

OVERLAY = "without_gpu"  # the section whose settings hold where the machine has no GPU

MAX_BYTES = 2**20
MAX_VALUES = 20_000  # aliases multiply: a small file can expand to more values than fit in memory
MAX_DEPTH = 30

# A parameter is either searched or fixed: setting it in one section removes it from the other.
_COUNTERPART = {"fixed": "parameters", "parameters": "fixed"}

# Types of a value after parsing, by the plain type that it becomes. A bool is an int, so bool comes first.
_PLAIN_TYPES: dict[type, tuple[type, ...]] = {bool: (bool, ScalarBoolean), int: (int,), float: (float,), str: (str,)}


def read_space_file(path: Path, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], Source]:
    """Read a YAML file, apply the overrides (`a.b=value`), and return the content with the place of each value.

    YAML 1.2: `1e-5` is a number, `off` is a string, and duplicate keys are errors. No Python objects are built.

    Raises:
        SpaceError: the file cannot be read or parsed, or an override cannot be applied to it.
    """
    reader = _Reader(lambda line: f"{path}:{line}")
    content = reader.plain(reader.parse(_read_text(path)))
    if not isinstance(content, dict):
        expected = "a space file is a mapping: parameters, objectives, ..."
        raise SpaceError(f"{path}:1: found {format_value(content)}; {expected}")
    for override in overrides:
        _apply(override, content, reader.places)
    return content, Source(f"{path}:1", reader.places)


def shipped_spaces() -> dict[str, Path]:
    """Return the space files that come with the package, by name."""
    return {path.stem: path for path in Path(__file__).parents[1].glob("spaces/*.yaml")}


def apply_overrides(content: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return plain data with the overrides applied.

    Raises:
        SpaceError: an override cannot be applied.
    """
    result: dict[str, Any] = copy.deepcopy(dict(content))
    for override in overrides:
        _apply(override, result, {})
    return result


def merge_settings(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Lay the settings of `overlay` over `base`: sections are merged key by key, deeper values are replaced."""
    result = dict(base)
    for section, counterpart in _COUNTERPART.items():
        if isinstance(base.get(section), Mapping) and isinstance(overlay.get(counterpart), Mapping):
            result[section] = {key: value for key, value in base[section].items() if key not in overlay[counterpart]}
    for section, content in overlay.items():
        both = isinstance(content, Mapping) and isinstance(result.get(section), Mapping)
        result[section] = {**result[section], **content} if both else content
    return result


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SpaceError(f"{path}: more than {MAX_BYTES:,} bytes; a space file is a page or two")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        others = sorted([*shipped_spaces(), *(file.name for file in path.parent.glob("[!.]*.yaml"))])
        raise SpaceError(f"{path}: no such file{did_you_mean(path.name, others)}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SpaceError(f"{path}:{line}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise SpaceError(f"{path}: cannot be read: {error.strerror}") from None


class _Reader:
    """Parser of one text that records the place of each key and list item; `origin` names a line (1, 2, ...)."""

    def __init__(self, origin: Callable[[int], str], top: KeyPath = ()) -> None:
        self._origin, self._top = origin, top
        self.places: dict[KeyPath, Place] = {}
        self._values = 0

    def parse(self, text: str) -> Any:
        """Parse to ruamel's commented containers, which know their lines."""
        try:
            return YAML(typ="rt").load(text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = f"{error.problem or error.context}".partition(" with value ")[0]  # of a duplicate key
            raise self._invalid(mark.line + 1 if mark else 1, problem) from None
        except ReaderError as error:
            raise self._invalid(text.count("\n", 0, error.position) + 1, error.reason) from None
        except (YAMLError, ValueError, RecursionError) as error:
            raise self._invalid(1, error) from None

    def plain(self, value: Any, path: KeyPath = (), line: int = 1) -> Any:
        """Convert to dicts, lists and scalars, and record the places."""
        self._values += 1
        if self._values > MAX_VALUES or len(path) > MAX_DEPTH:
            excess = f"deeper than {MAX_DEPTH} levels" if len(path) > MAX_DEPTH else f"more than {MAX_VALUES:,} values"
            raise self._invalid(line, f"{excess}, aliases counted where they are used")
        where = Place(self._origin(line), dotted_key(self._top + path))
        self.places[self._top + path] = where
        if getattr(value, "tag", None) is not None and value.tag.value:
            raise _error(where, f"found the tag {value.tag.value}; a space file has plain values only")
        match value:
            case CommentedMap():
                lines = value.lc.data
                for key in value:
                    if not isinstance(key, str):
                        there = where._replace(origin=self._origin(_line(lines, key, line)))
                        shown = "null" if key is None else format_value(key)
                        if value[key] is None and isinstance(key, int | float):
                            raise _error(there, f"found {shown} without a name; a list is in brackets, as in [1, 2]")
                        raise _error(there, f'the key {shown} is not a string; write "{shown}"')
                return {f"{k}": self.plain(v, (*path, f"{k}"), _line(lines, k, line)) for k, v in value.items()}
            case CommentedSeq():
                lines = value.lc.data
                return [self.plain(item, (*path, i), _line(lines, i, line)) for i, item in enumerate(value)]
            case None:
                return None
            case int() if abs(value) >= MAX_INTEGER:
                raise _error(where, "found a whole number of more than 64 bits")
        for plain_type, kinds in _PLAIN_TYPES.items():
            if isinstance(value, kinds):
                return plain_type(value)
        raise _error(where, f"found a {type(value).__name__}; in quotes it would be a string")

    def _invalid(self, line: int, problem: Any) -> SpaceError:
        return _error(Place(self._origin(line), dotted_key(self._top)), f"not valid YAML: {problem}")


def _error(where: Place, message: str) -> SpaceError:
    return Source(where.origin).error(Problem((where.key,) if where.key else (), message))


def _line(lines: Mapping[Any, Sequence[int]] | None, key: Any, enclosing: int) -> int:
    """Return the line (1, 2, ...) of a key or item; keys merged by `<<` have the line of the enclosing mapping."""
    return lines[key][0] + 1 if lines and key in lines else enclosing


def _apply(override: str, content: dict[str, Any], places: dict[KeyPath, Place]) -> None:
    """Set the value of `a.b=value`, in the section `without_gpu` too: the command line overrides both."""
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
        _remove_counterpart(overlay, path)
        section = overlay.get(path[0])
        if path[0] in overlay and (len(path) == 1 or (isinstance(section, dict) and path[1] in section)):
            _assign(overlay, path, value, origin)
    for stale in [p for p in places if p[: len(path)] == path or p[: len(path) + 1] == (OVERLAY, *path)]:
        del places[stale]
    for depth in range(1, len(path)):
        places.setdefault(path[:depth], Place(origin, dotted_key(path[:depth])))
    places.update(reader.places)


def _assign(content: dict[str, Any], path: tuple[str, ...], value: Any, origin: str) -> None:
    _remove_counterpart(content, path)
    for depth, part in enumerate(path[:-1], start=1):
        if content.get(part) is None:
            content[part] = {}
        content = content[part]
        if not isinstance(content, dict):
            found = f"{dotted_key(path[:depth])} is {format_value(content)}, without keys"
            raise SpaceError(f"{origin}: {found}; set the whole value")
    content[path[-1]] = value


def _remove_counterpart(content: dict[str, Any], path: tuple[str, ...]) -> None:
    counterpart = content.get(_COUNTERPART.get(path[0], ""))
    if isinstance(counterpart, dict) and len(path) > 1:
        counterpart.pop(path[1], None)
