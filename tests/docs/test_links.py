"""Links between the documents lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_each_link_to_a_file_leads_to_one(document):
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    targets = [link.split("#")[0] for link in links if not link.startswith(("http:", "https:", "#"))]
    assert not [target for target in targets if not (document.parent / target).exists()]


def test_the_readme_has_at_most_a_thousand_words_and_leads_to_each_document():
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 1000
    assert {f"docs/{path.name}" for path in ROOT.glob("docs/*.md")} <= set(re.findall(r"\]\(([^)\s]+)\)", text))
