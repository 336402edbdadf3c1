"""Markdown: tables, and the parts of documents that are made."""

from .machine import ROOT


def table(head, rows):
    """A table; the first column is text, the others are numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def put(document, name, text):
    """Replaces what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->` in a document of the project."""
    path = ROOT / document
    old = path.read_text()
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    before, found, rest = old.partition(begin)
    _, also_found, after = rest.partition(end)
    if not (found and also_found):
        raise SystemExit(f"{document} has no place for {name}")
    path.write_text(before + begin + text.strip("\n") + "\n" + end + after)
