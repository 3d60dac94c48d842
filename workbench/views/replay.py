"""A finished run as one HTML file that still moves: no server, no network, from file://.

The page holds the stage's own modules and the very messages that a live page gets, made small
(views/pages/compact.py), gzipped, as base64: some five bytes an event, and the modules. All events
are in it up to views.pages.past.HISTORY_ROWS; of a longer run the newest, and the page says how
many are not.
"""

from __future__ import annotations

import base64
import html
import json
import os
import zlib
from string import Template
from typing import Any

from workbench.common.output_files import atomically
from workbench.common.units import counted
from workbench.front_end.assets import joined, stage_module, theme
from workbench.runs.loaded import Loaded
from workbench.store.event_store import Store
from workbench.views.packing import Message
from workbench.views.pages.compact import part
from workbench.views.pages.feed import Feed

# A part at a time reaches the stage, with a frame between two, so that a large run does not freeze
# the page. What the browser cannot do is said in words, by a script that every browser reads.
_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'">
<title>$title</title>
<style>:root { color-scheme: light dark; }
body { margin: 0; background: light-dark(#ffffff, #14171b); color: light-dark(#14181d, #eceff2); }
body > main { max-width: 1320px; margin: 0 auto; }
body > main > p { font: 14px/1.5 sans-serif; padding: 0 16px; }
$style</style></head>
<body><main id="stage"><noscript><p>This page draws a run of distributed training from its
events; it needs JavaScript.</p></noscript></main>
<script type="text/plain" id="modules">$modules</script>
<script type="text/plain" id="run">$run</script>
<script type="module">
const unzipped = async (id) => {
  const text = atob(document.getElementById(id).textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  document.getElementById(id).remove();
  const whole = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(whole);
};
const module = (text) => import("data:text/javascript;charset=utf-8," + encodeURIComponent(text));
const main = document.getElementById("stage");
try {
  const [stage, unpack] = await Promise.all((await (await unzipped("modules")).json()).map(module));
  const file = new Uint8Array(await (await unzipped("run")).arrayBuffer());
  const replay = async (take) => {
    for (const { header, columns } of unpack.partsOf(file)) {
      take(header, [unpack.unpack(header, columns)]);
      await new Promise((done) => setTimeout(done));
    }
  };
  const model = { on: (event, take) => event === "msg:custom" && replay(take), off() {} };
  stage.default.render({ model, el: main });
} catch (error) {
  const words = `This browser cannot replay the run ($${error}); one of 2023 or later can.`;
  main.append(Object.assign(document.createElement("p"), { textContent: words }));
}
</script></body></html>
""")


def to_html(store: Store, path: str | os.PathLike[str], walk: dict[str, Any] | None = None) -> None:
    """Write the run that ``store`` holds, live or loaded, as a page to ``path``; it opens ``walk``
    (views/walks.py).
    """
    with atomically(path, "the page") as beside:
        beside.write_text(page(store, walk), encoding="utf-8")


def page(store: Store, walk: dict[str, Any] | None = None) -> str:
    """Return the page that replays this run, and opens ``walk``."""
    run: dict[str, Any] = {}
    squeeze, pieces = zlib.compressobj(9), list[bytes]()

    def add(message: Message) -> None:
        header = message.header
        if run and not header["rows"]:
            return  # nothing that the first part has not told
        if walk and not run:
            header["run"]["walk"] = walk
        run.update(header["run"])
        pieces.append(squeeze.compress(part(message)))

    over = Loaded(store)
    Feed(over).tell_all(over, add)
    modules = json.dumps([stage_module(), joined("widgets/unpack.js")]).encode()
    return _PAGE.substitute(
        title=html.escape(
            f"{run['title'] or 'Distributed training'}, {counted(run['ranks'], 'rank')}"
        ),
        style=theme(),
        modules=base64.b64encode(zlib.compress(modules, 9)).decode(),
        run=base64.b64encode(b"".join(pieces) + squeeze.flush()).decode(),
    )
