"""The page as HTML: its Markdown, with a style of its own; no scripts, pictures from the files beside it."""

from __future__ import annotations

from markdown_it import MarkdownIt

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
p, li { max-width: 46rem; }
h1, h2, h3 { line-height: 1.2; margin-top: 2em; }
h1 { margin-top: 0; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 14px;
  font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #d0d0d0; padding: .3em .7em; text-align: left; vertical-align: top; }
td:not(:first-child) { min-width: 4.5em; }
th { border-bottom: 2px solid #555; }
img { max-width: 100%; height: auto; }
summary { cursor: pointer; color: #0b5394; margin: .5em 0; }
code { background: #f2f2f2; padding: .1em .25em; border-radius: 3px; }
"""


def web_page(markdown: str) -> str:
    """A whole HTML page; its title is the first heading."""
    title = next(line.removeprefix("# ") for line in markdown.splitlines() if line.startswith("# "))
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
