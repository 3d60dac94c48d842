"""Hosts that are cut off from the driver: recorded when they are, named where a run fails."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from workbench.common.errors import RunTimeout, WorkbenchError, from_fields, timed_out
from workbench.launchers.processes.launcher import Launcher
from workbench.launchers.processes.remote_rank import LEAST_PATIENCE

CUT_OFF, BACK = "cut off", "back"  # names of rows


class HostWatch:
    """Looks now and then at which ranks a launcher cannot reach. ``note``: records what is new of a
    rank, and its host.
    """

    def __init__(self, launcher: Launcher, note: Callable[[int, str, str], None]) -> None:
        self._launcher, self._note = launcher, note
        self._cut: Mapping[int, str] = {}  # rank -> its host

    def look(self) -> None:
        """Record which hosts are cut off, and which are back."""
        cut = self._launcher.cut_off()
        for rank in sorted(cut.keys() ^ self._cut.keys()):
            if rank in cut:
                self._note(rank, CUT_OFF, cut[rank])
            else:
                self._note(rank, BACK, self._cut[rank])
        self._cut = cut

    def error(self, lost: Mapping[int, int], timeout: float) -> WorkbenchError | None:
        """Return the error of a run that has lost ranks, all of them with their hosts; else None.
        ``timeout``: the experiment's, in seconds.
        """
        cut = {rank: host for rank, host in self._launcher.cut_off().items() if rank in lost}
        if not lost or len(cut) < len(lost):
            return None
        return RunTimeout(
            f"{in_words(cut)}: nothing comes from there, and no agent has called again. The driver "
            f"waits for the timeout, and {LEAST_PATIENCE:g} s at least. {timed_out(timeout)}",
            min(cut),
            how="silent",
        )

    def named(self, error: WorkbenchError, reported: Container[int]) -> WorkbenchError:
        """Return the error, with the hosts that are cut off and of whose ranks nothing is known."""
        cut = self._launcher.cut_off()
        cut = {rank: host for rank, host in cut.items() if rank not in reported}
        if not cut:
            return error
        result = from_fields(error.as_fields(), f"{error}\n  {in_words(cut)}")
        result.under_way = error.under_way
        return result


def in_words(cut: Mapping[int, str]) -> str:
    """Return which hosts are cut off, from the ranks that are, with their hosts."""
    hosts: dict[str, list[int]] = {}
    for rank, host in sorted(cut.items()):
        hosts.setdefault(host, []).append(rank)
    named = [
        f"host {host} (rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))})"
        for host, ranks in hosts.items()
    ]
    return f"{' and '.join(named)} {'is' if len(named) == 1 else 'are'} cut off from the driver"
