"""A slice as one HTML file in which a reader walks: the picture, the state at each step, and every way on.

The file asks nothing of a network or of a directory beside it. Style and script are ours and fixed; the policy in the
head (Content Security Policy 3) names them by their hashes and allows nothing else, so that whatever a model may call
its values, they are text. The slice itself is a block of data (HTML, 4.12.1) that the script parses: as JSON in which
no character can end the block or open a tag.
"""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from xml.etree import ElementTree

from checker.report.drawing import plain
from checker.report.slice_data import slice_data
from checker.report.slices import Slice
from checker.report.svg import tree

_UNSAFE = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(part: Slice) -> str:
    """The explorer of a slice, as the text of a file of HTML in UTF-8."""
    style, script = (f"\n{_asset(name)}" for name in ("explorer.css", "explorer.js"))
    parts = {
        "policy": f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {_hashed(style)}; script-src {_hashed(script)}",
        "title": escape(plain(part.title)),
        "note": escape(plain(part.note)),
        "style": style,
        "script": script,
        "data": json.dumps(slice_data(part), separators=(",", ":")).translate(_UNSAFE),
        "graph": ElementTree.tostring(tree(part, alone=False), encoding="unicode"),
    }
    # In one pass: what is put in is not looked through for places.
    return _PLACE.sub(lambda found: parts[found[1]], _asset("explorer.html"))


def _asset(name: str) -> str:
    return files("checker.report").joinpath(name).read_text("utf-8")


def _hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
