"""[add here] Recordings that others made, read into the event table: a file for each format.

    kineto.py            torch.profiler's Chrome traces, one a rank
    flight_recorder.py   torch's flight recorder, dumped as JSON, one a rank
    horovod.py           Horovod's timeline, which rank 0 writes
    chakra.py            Chakra execution traces, one a rank: protobuf, or PyTorch's JSON

A module has ``NAME``, ``matches(file)``, which looks at the beginning of a file, and
``read(files)``, which returns a Recording: rows, and in words how much they say. ``reading.py``
asks the modules one after the other. Nothing is unpickled.
"""
