"""Sphinx configuration of the documentation site: `make docs` writes it to build/site.

The source folder is the project's root, because pages link to the README, to published tables and to source files.
"""

from importlib.metadata import version as version_of

project = "training-search"
author = copyright = "the training-search developers"
version = release = version_of("training-search")

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "results/LOG.md",
    "results/published/*.md",
]
nitpicky = True  # with -W an unknown reference is an error
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"training-search {version}"
