"""The address of a job's page, as ``workbench attach`` and ``watch`` print it, instead of the
folder that the job records into: the page answers which folder that is.

Records are read from files, never through the page; so the job has to be on this machine.
"""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from workbench.common.errors import WorkbenchError
from workbench.transports.peer_page import clock_identity

PATH = "/records"  # of the page
ANSWER_S = 5.0  # seconds for a page to answer
MOST = 1 << 14  # bytes of an answer


def records_of(folder: Path) -> dict[str, str]:
    """Return what a page answers: where its job's records are."""
    return {"folder": str(folder), "machine": clock_identity()}


def folder_at(place: str | os.PathLike[str]) -> Path:
    """Return the folder of a job: ``place`` itself, or what the page at that address answers.

    Raises WorkbenchError where no page of a job answers, or its records are on another machine.
    """
    text = os.fspath(place)
    if not text.startswith(("http://", "https://")):
        return Path(text).absolute()
    answer = _ask(text)
    if answer.get("machine") != clock_identity():
        raise WorkbenchError(
            f"the job at {text} is on another machine, in {answer.get('folder')}: watch that "
            "folder there, or where its disk is shared name the folder instead of the address"
        )
    return Path(str(answer["folder"]))


def _ask(address: str) -> dict[str, str]:
    """Return what the page at an address answers."""
    try:
        parts = urlsplit(address)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        line = kind(parts.hostname or "", parts.port, timeout=ANSWER_S)
        try:
            line.request("GET", PATH)
            answer = line.getresponse()
            fields = json.loads(answer.read(MOST)) if answer.status == 200 else None
        finally:
            line.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise WorkbenchError(f"no page of a job answers at {address}: {error}") from None
    if not isinstance(fields, dict) or "folder" not in fields:
        raise WorkbenchError(
            f"what answers at {address} is not the page of a job: name the address that `workbench "
            "attach` or `workbench watch` has printed"
        )
    return fields
