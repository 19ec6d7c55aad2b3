"""HTML and SVG from text that cannot be trusted."""

from __future__ import annotations

import html

from hubermean.readable import printable


def safe(text: str) -> str:
    """Text as content or as an attribute: nothing in it is markup, a control code or a change of direction.

    >>> safe('<b>"a"' + chr(0x202E))
    '&lt;b&gt;&quot;a&quot;�'
    """
    return html.escape(printable(text), quote=True)


def tag(name: str, *content: str, **attributes: str | float | None) -> str:
    """An element of safe content; attributes are made safe here. `class_` is class, `text_anchor` is text-anchor.

    >>> tag("p", safe("a < b"), class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(_written(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(content)}</{name}>"


def _written(value: str | float) -> str:
    """Three decimals at most: of pixels and of percentages nobody sees more."""
    return value if isinstance(value, str) else f"{value:.3f}".rstrip("0").rstrip(".")
