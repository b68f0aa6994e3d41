"""JSON schema of space files, with which editors complete and check keys.

`python docs/write_reference.py` writes it to docs/space.schema.json.
"""

from __future__ import annotations

import json

from search.space.space import Space


def space_schema() -> str:
    """Return the schema as text; it knows the keys of a file, not the parameters of a training."""
    schema = Space.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
