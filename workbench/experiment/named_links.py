"""Links with real names: the latency of a small message and the bandwidth, each way.

InfiniBand is named by its generation, as a port of four lanes: EDR, HDR, NDR, XDR. RoCE carries the
same protocol, RDMA, over Ethernet: a network card writes into another machine's memory, without
either operating system, so that its latency is a fraction of TCP's.

Source  NVIDIA's data sheets of ConnectX-5 (EDR), -6 (HDR), -7 (NDR) and -8 (XDR), and the roadmap
        of the InfiniBand Trade Association, https://www.infinibandta.org/infiniband-roadmap/

Round figures from data sheets and common measurements between two processes: a real link varies by
a factor of two with its switch, cable and driver. They are there to compute with (``wb.why``,
``wb.plan``, the α-β model); to emulate one, it must be slower than the machine itself.
"""

from __future__ import annotations

NAMED: dict[str, tuple[str, str]] = {  # name -> latency, bandwidth
    "1 GbE": ("25 µs", "1 Gbit/s"),  # TCP
    "10 GbE": ("20 µs", "10 Gbit/s"),  # TCP
    "100 GbE": ("15 µs", "100 Gbit/s"),  # TCP; a single connection rarely fills it
    "100 GbE, RDMA": ("3 µs", "100 Gbit/s"),  # RoCE: the network card writes into memory
    "RoCE, 400 GbE": ("3 µs", "400 Gbit/s"),
    "InfiniBand EDR": ("1 µs", "100 Gbit/s"),
    "InfiniBand HDR": ("1 µs", "200 Gbit/s"),
    "InfiniBand NDR": ("1.5 µs", "400 Gbit/s"),
    "InfiniBand XDR": ("1 µs", "800 Gbit/s"),
    "PCIe": ("1 µs", "504 Gbit/s"),  # 5.0, 16 lanes
    "NVLink": ("2 µs", "3600 Gbit/s"),  # fourth generation, all links of an H100
}
