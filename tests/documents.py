"""The programs that README.md and the pages of docs/guide show."""

from __future__ import annotations

import re

from programs import ROOT

DOCUMENTS = {file: file.read_text() for file in (ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md")))}
_EXAMPLE = re.compile(r"<!-- example: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
EXAMPLES = {name: text for document in DOCUMENTS.values() for name, text in _EXAMPLE.findall(document)}
