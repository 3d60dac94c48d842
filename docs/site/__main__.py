"""Build the site: ``python -m docs.site FOLDER``.

``--without-replays`` keeps the replays that are there; ``--replays ring server`` makes these alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from docs.site.chapters import chapter, frame
from docs.site.markdown import page
from docs.site.reference import reference
from docs.site.replays import OF_CHAPTER, experiments, record

ROOT = Path(__file__).resolve().parents[2]
GUIDES = {  # file of docs/ -> how the menu calls it
    "own_job": "Your own job",
    "own_algorithm": "Your own algorithm, strategy or scene",
    "own_scene": "Your own scene",
    "reinforcement_learning": "Reinforcement learning",
    "debugging_a_hang": "Debugging a hang",
    "teaching_a_class": "Teaching a class",
    "containers": "Containers, Codespaces, Binder, Colab",
    "ssh_and_torchrun": "Several hosts: ssh, torchrun, mpiexec",
    "slurm": "Slurm",
    "ray": "Ray",
    "spark": "Spark",
    "critical_path": "The critical path",
    "mesh": "A mesh of ranks",
    "event_table": "The event table",
    "channel_security": "Security of the channel between hosts",
}
SCENES = {  # replay -> what there is to see
    "ring": "Collectives: a ring all-reduce, chunk by chunk",
    "server": "Parameter server: versions, pushes, the bound of SSP",
    "overlap": "Timeline: DDP's buckets and what backward hides of them",
    "pipeline": "Pipeline: 1F1B in true time, its plan and its bubble",
    "gossip": "Peers: how far replicas are apart",
    "fsdp": "Shards: which layer is whole where, and when",
    "recovery": "A rank dies, and a new process takes its place",
}
CSS = """\
.replay { width: 100%; height: 640px; border: 1px solid var(--md-default-fg-color--lightest); }
.caption { font-size: .7rem; opacity: .8; }
.output { overflow-x: auto; }
.md-typeset img { max-width: 100%; background: #fff; }
.wrap code { white-space: pre-wrap; }
math { font-size: 1.05em; }
"""


def main() -> None:
    """Write the site into the folder that the command names."""
    parser = argparse.ArgumentParser(prog="python -m docs.site")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without-replays", action="store_true")
    parser.add_argument("--replays", nargs="*", default=[*SCENES])
    given = parser.parse_args()
    target = given.folder.resolve()
    source = target.with_name(f"{target.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    replays = target.with_name(f"{target.name}-replays")
    if not given.without_replays:
        record(replays, given.replays)
    known = {one.stem for one in replays.glob("*.html")}
    shutil.copytree(replays, source / "replays")
    config = write_pages(source, known)
    (source.parent / f"{target.name}.yml").write_text(
        yaml.safe_dump(config | _places(source, target)), encoding="utf-8"
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # its advertisement of a successor
    built = [*command, str(source.parent / f"{target.name}.yml")]
    subprocess.run(built, check=True, timeout=600, env=quiet)
    print(f"{target}/index.html: open it in a browser; it needs no server and no network")


def write_pages(source: Path, replays: set[str]) -> dict[str, object]:
    """Write every page as Markdown into ``source``; return mkdocs' configuration."""
    (source / "extra.css").write_text(CSS, encoding="utf-8")
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    chapters = []
    for notebook in notebooks:
        name = OF_CHAPTER.get(notebook.name.partition("_")[0], "")
        replay = f"replays/{name}.html" if name in replays else ""
        text = chapter(notebook, source / "pictures", replay)
        (source / f"{notebook.stem}.md").write_text(text, encoding="utf-8")
        title = re.search(r"^# (.+)$", text, re.M)
        chapters.append(
            {title[1].replace("`", "") if title else notebook.stem: f"{notebook.stem}.md"}
        )
    for guide in GUIDES:
        (source / f"{guide}.md").write_text(
            _repository(page((ROOT / f"docs/{guide}.md").read_text(encoding="utf-8"))),
            encoding="utf-8",
        )
    (source / "glossary.md").write_text(
        _repository(page((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))), encoding="utf-8"
    )
    (source / "changes.md").write_text(
        _repository(page((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))), encoding="utf-8"
    )
    (source / "reference.md").write_text(reference(), encoding="utf-8")
    (source / "gallery.md").write_text(_gallery(replays), encoding="utf-8")
    (source / "index.md").write_text(_front(replays), encoding="utf-8")
    return {
        "site_name": "Distributed training workbench",
        "theme": {
            "name": "material",
            "font": False,
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default"},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate"},
            ],
            "features": ["navigation.tabs", "navigation.top", "toc.follow"],
        },
        "use_directory_urls": False,
        "plugins": ["search"],
        "extra_css": ["extra.css"],
        "extra": {"generator": False},
        "markdown_extensions": [
            "admonition", "attr_list", "md_in_html", "tables", "pymdownx.superfences",
            {"pymdownx.highlight": {"use_pygments": True}},
        ],
        "nav": [
            {"Start": "index.md"},
            {"Chapters": chapters},
            {"Guides": [{title: f"{guide}.md"} for guide, title in GUIDES.items()]},
            {"Gallery": "gallery.md"},
            {"Reference": ["reference.md", "glossary.md", "changes.md"]},
        ],
    }  # fmt: skip


def _places(source: Path, target: Path) -> dict[str, str]:
    return {"docs_dir": str(source), "site_dir": str(target)}


def _gallery(replays: set[str]) -> str:
    parts = ["# Gallery of scenes", "Each is a real run, recorded when this site was built."]
    for name, words in SCENES.items():
        if name in replays:
            parts += [
                f"## {words}",
                frame(f"replays/{name}.html", f"Scene: {experiments()[name][0]}"),
            ]
    return "\n\n".join(parts) + "\n"


def _front(replays: set[str]) -> str:
    """Return the front page: the README's first part, a live replay instead of its pictures."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    head, _, rest = readme.partition("![Four ranks on a ring")
    table = "| I want to" + rest.partition("| I want to")[2].partition("## The chapters")[0]
    table = table.replace("(#your-own-job)", "(own_job.md)")
    live = frame("replays/ring.html", "A run, replayed: four ranks average gradients on a ring")
    live = live if "ring" in replays else ""
    links = "[All chapters](00_start_here.md) · [Gallery](gallery.md) · [Reference](reference.md)"
    return "\n\n".join([head.strip(), live, links, _repository(page(table))]) + "\n"


def _repository(text: str) -> str:
    """Return Markdown whose links to files of the repository that the site lacks are plain code."""

    def link(found: re.Match[str]) -> str:
        words, address = found[1], found[2]
        path, _, anchor = address.partition("#")
        stem = Path(path).stem
        if address.startswith(("http://", "https://", "#")) or path.endswith(".md"):
            if path == "GLOSSARY.md":
                return f"[{words}](glossary.md)"
            if Path(path).name in {f"{guide}.md" for guide in GUIDES}:
                return f"[{words}]({Path(path).name}{'#' + anchor if anchor else ''})"
            if not path.endswith(".md") or re.fullmatch(r"\d\d[a-z]?_\w+", stem):
                return found[0]
        return f"`{path}`" if words == path else f"{words} (`{path or address}`)"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", link, text)


if __name__ == "__main__":
    main()
