"""Texts that an implementation might bring, none of which may become more than text where it is shown."""

from __future__ import annotations

HOSTILE = {
    "html": "<script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "end of script": "</script><script>window.hacked = 1</script><!-- \"'",
    "start of comment": "<!--<script>",
    "attribute": '" onmouseover="window.hacked = 1" x=\'',
    "link": "[a](javascript:alert(1))",
    "end of link": "](javascript:alert(1))",
    "address": "javascript:window.hacked=1//https://example.org",
    "bare link": "https://example.org/evil www.example.org a@example.org @someone",
    "cell": "a | b || c",
    "code": "`a` ``b``",
    "markup": "*a* **b** _c_ ~~d~~ $e$ $$f$$",
    "template": "$document ${document} {{ 7 * 7 }}",
    "terminal": "\x1b[31mred\x1b[0m\x07\x9b2J",
    "nul": "a\x00b",
    "lines": "a\n\n# heading\r\n- item\u2028b\x85c\u2029",
    "reference": "&lt;script&gt; &#60; &quot;",
    "directions": "a\u202eb\u2066c\u2069\u200fd",
    "invisible": "a\u200bb\u200dc\ufeffd\U000e0041",
    "surrogate": "a\ud800b",
    "prototype": "__proto__",
    "escape": "\\u003cscript\\u003e \\",
    "long": "x" * 5000,
}

HUGE = "<b>10 MB</b>" * 900_000
