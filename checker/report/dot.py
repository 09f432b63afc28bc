"""A slice in the DOT language of Graphviz, for whoever has it; `checker.report.svg` draws without it."""

from checker.report.drawing import arcs, label, plain
from checker.report.slices import Slice

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})


def dot(part: Slice) -> str:
    """The slice as a directed graph. Arcs that the run takes are bold; dashed are those on which a rule fails."""
    lines = [
        f"digraph {_quoted(part.title)} {{",
        "  rankdir=TB;",
        '  node [shape=box, fontname="monospace", fontsize=10];',
        '  edge [fontname="sans-serif", fontsize=9];',
    ]
    if part.note:
        lines.append(f"  label={_quoted(part.note)};")
    for number in range(len(part.nodes)):
        style = ", penwidth=2" if number == 0 else ""
        lines.append(f"  n{number} [label={_quoted(*label(part, number))}{style}];")
    for arc in arcs(part):
        style = (", penwidth=2.5" if arc.steps else "") + (", style=dashed" if arc.failed else "")
        lines.append(f"  n{arc.source} -> n{arc.target} [label={_quoted(arc.short)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(*lines: str) -> str:
    """A double-quoted string of left-justified lines.

    In the grammar a backslash escapes a quote. Within labels Graphviz gives meaning to more of them (``\\l`` ends a
    line that is left-justified) and reads the entities of HTML, so both are escaped too.
    """
    escaped = [plain(line).translate(_ESCAPES) for line in lines]
    return f'"{escaped[0]}"' if len(escaped) == 1 else '"' + "".join(f"{line}\\l" for line in escaped) + '"'
