"""The first word of each docstring: a noun phrase or a verb, never a fragment whose subject the reader has to guess."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("search", "trainables", "benchmarks")
MAX_SHARE = 0.02  # a few sentences are right as they are: "To the nearest core" may be the clearest summary

PREPOSITIONS = (
    "about above after among around as at before behind below beside between by during for from in like on of over per "
    "since through to under until via with within without"
)
PRONOUNS = (  # relative and interrogative; personal and demonstrative ones that refer to nothing yet
    "that those what whatever which who whoever whose how when where whether why here it there these they this"
)
CONJUNCTIONS = "alike also and because but either else if neither nor once only or rather so yet"
# "All", "Each", "Every", "No", "Several", "Some", "Two" and the like may begin a noun phrase: "All trials, by number."
# Those below stand for a noun that the sentence leaves out.
QUANTIFIERS = "both few fewer less many more most much nobody none nothing"
FRAGMENTS = frozenset(f"{PREPOSITIONS} {PRONOUNS} {CONJUNCTIONS} {QUANTIFIERS}".split())
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def first_word(docstring: str) -> str:
    return docstring.split()[0].strip("`.,:;").lower()


def docstrings() -> dict[str, str]:
    """Docstrings by `path:line`."""
    return {
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}": text
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node))
    }


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    texts = docstrings()
    fragments = [f"{place}: {text.splitlines()[0]}" for place, text in texts.items() if first_word(text) in FRAGMENTS]
    assert len(fragments) <= MAX_SHARE * len(texts), "\n".join(fragments)


def test_a_fragment_is_told_from_a_noun_phrase() -> None:
    examples = {"What is believed of one metric.": True, "Of a run.": True, "All trials, by number.": False}
    assert {text: first_word(text) in FRAGMENTS for text in examples} == examples
