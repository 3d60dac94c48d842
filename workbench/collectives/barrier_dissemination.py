"""Dissemination barrier: in each round every rank has heard of twice as many as before.

Paper  Hensgen, Finkel & Manber, "Two algorithms for barrier synchronization", International
       Journal of Parallel Programming 17(1), 1988. doi:10.1007/BF01379320
Cost   T = ⌈lg p⌉·α                                              [seconds]
       p ranks; α s/message. The messages are empty.
Walk   p=5: rank r tells r+1, then r+2, then r+4 (mod p) that it is there. After round k it has
       heard, from one or through others, of 2^(k+1) ranks up to its own; after ⌈lg p⌉ of all.
"""

from __future__ import annotations

import numpy as np

from workbench.messaging.communicator import Communicator

NOTHING = np.empty(0, np.uint8)


def barrier(comm: Communicator) -> None:
    """Return when every rank has called. Raises PeerLost if one ends."""
    p, me = comm.size, comm.rank
    step = 0
    while (distance := 1 << step) < p:
        comm.exchange(
            NOTHING,
            to=(me + distance) % p,
            into=NOTHING,
            frm=(me - distance) % p,
            step=step,
            chunk=0,
            phase="barrier",
        )
        step += 1
