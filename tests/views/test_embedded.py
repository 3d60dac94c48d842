"""A picture as an image: it is the very SVG, and its words cannot break out of the tag."""

from __future__ import annotations

import base64
import re

from workbench.front_end.html_picture import image


def test_the_image_is_the_picture_and_says_its_words() -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><text>λ₂ < 1</text></svg>'
    html = image(svg, 'a "quoted" <word>')
    match = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert match and base64.b64decode(match[1]).decode() == svg
    assert 'alt="a &quot;quoted&quot; &lt;word&gt;"' in html and html.count("<") == 1
