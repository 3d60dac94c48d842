from tests.processes import run, values
import os,time
def body(rank,size):
    import torch, torch.distributed as dist
    x=torch.ones(10); dist.all_reduce(x); return x.tolist()
def test_a():
    for n in (1,2,4,8):
        t=time.time(); v=values(body,n); print(n,time.time()-t); assert v[0]==[n]*10
def test_s():
    t=time.time()
    e=run("import torch, workbench, torch.distributed as dist,sys\ndist.init_process_group('workbench')\nx=torch.ones(10); dist.all_reduce(x); print(x)\nsys.exit(7)",2)
    print(e,time.time()-t)
def hang(rank,size):
    if rank: time.sleep(100)
def test_h():
    import pytest
    with pytest.raises(AssertionError,match="time.sleep|in hang"): run(hang,2,timeout=2)
def test_k():
    print(run(hang,2,timeout=2))
