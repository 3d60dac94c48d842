"""A model under torch's ``fully_shard``, watched: when each layer is gathered, and what ranks hold.

Nothing of FSDP is replaced. Its collectives are called through FSDP's own hook for that
(``set_custom_all_gather``), so that they carry the layer's name and their buffers are counted; that
a layer is there or gone is seen where FSDP allocates and frees it, and the bytes are those of the
storages before and after.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from workbench.common.torch_names import all_gather_single, reduce_scatter_single
from workbench.experiment.optimizers import states
from workbench.rank.bands import GATHERED, UNREDUCED
from workbench.rank.layers import REST, WHOLE, units
from workbench.recording.events import CODE, Where, now
from workbench.training.fsdp.memory import ShardedMemory
from workbench.user_code.source import split_path

if TYPE_CHECKING:
    from workbench.rank.job import Job

_METRIC = CODE["metric"]


class Sharded:
    """One rank's parts of a model, or of a stage."""

    def __init__(
        self,
        job: Job,
        memory: ShardedMemory,
        model: nn.Module,
        layers: Sequence[tuple[str, list[nn.Module]]],
        mesh: DeviceMesh,
        *,
        free: bool = True,
        aside: dist.ProcessGroup | None = None,
    ) -> None:
        """Shard the layers over the ranks of a mesh; ``free`` them after forward. ``layers``:
        modules that are gathered at once, with a name; ``aside``: the group of all but training.
        """
        self.job, self.memory, self.model = job, memory, model
        self.metrics = job.metrics_group() if aside is None else aside
        if isinstance(job.exp.task, str) and not split_path(job.exp.task):
            # It warns of changing an output in place, which our tasks do not.
            warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        for _, modules in layers:
            fully_shard(modules, mesh=mesh, reshard_after_forward=free)
        fully_shard(model, mesh=mesh, reshard_after_forward=free)
        of = [Layer(self, name, modules[0]) for name, modules in layers]
        of.append(Layer(self, REST if layers else WHOLE, model))
        self.layers = [layer for layer in of if layer.parameters]

    @classmethod
    def of_task(cls, job: Job, *, by: str, free: bool, ahead: int) -> Sharded:
        """Return the task's model, sharded over all ranks ``by`` layers or whole; each layer is
        gathered ``ahead`` layers before its use.
        """
        memory = job.memory = ShardedMemory(job.run_rank, job.exp.memory_limit_bytes, job.recorder)
        memory.counts_activations = True  # a page draws what is held
        model = job.model(keep=False)
        layers = [(name, [module]) for name, module in units(model, by)]
        mesh = init_device_mesh(job.device.type, (job.ranks,))
        result = cls(job, memory, model, layers, mesh, free=free)
        _look_ahead([layer.module for layer in result.layers], ahead)
        result._tell(by, free, ahead)
        return result

    def _tell(self, by: str, free: bool, ahead: int) -> None:
        """Publish how many bytes of each layer each rank has."""
        mine = torch.tensor([layer.own_bytes for layer in self.layers])
        parts = mine.new_empty(self.job.ranks * len(mine))
        all_gather_single(parts, mine, group=self.metrics)
        if self.job.rank:
            return
        by_layer = parts.view(self.job.ranks, len(mine)).T.tolist()
        exp = self.job.exp
        layers = [
            {"name": layer.name, "kind": layer.kind, "bytes": layer.whole_bytes, "parts": of}
            for layer, of in zip(self.layers, by_layer, strict=True)
        ]
        facts = {
            "kind": "fsdp2",
            "units": by,
            "free": free,
            "ahead": ahead,
            "layers": layers,
            "states": states(exp.optimizer, exp.momentum),
        }
        self.job.tell({"shards": json.dumps(facts)})

    def note(self) -> None:
        """Record how much is held now, and how much of that are activations."""
        recorder, moment = self.job.recorder, now()
        lane = recorder.lane("compute")
        lane.context(where=recorder.where)
        for name, value in (("held", self.memory.held), ("activations", self.memory.activations)):
            lane.write(_METRIC, moment, moment, name=recorder.name(name), value=float(value))

    def free(self) -> None:
        """Keep this rank's parts only."""
        for layer in self.layers:
            layer.module.reshard()

    def whole(self) -> dict[str, torch.Tensor]:
        """Return the parameters of the unsplit model, one layer gathered at a time."""
        self.job.recorder.where = Where()
        self.model.eval()  # not training's: in the group of metrics
        result: dict[str, torch.Tensor] = {}
        for layer in self.layers:
            layer.module.unshard()
            result |= layer.values()
            layer.module.reshard()
        self.model.train()
        buffers = {name: one.detach().cpu() for name, one in self.model.named_buffers()}
        names = self.model.state_dict().keys()
        return {name: (result | buffers)[name] for name in names}


class Layer:
    """One unit of ``fully_shard``, as FSDP gathers and frees it."""

    def __init__(self, sharded: Sharded, name: str, module: nn.Module) -> None:
        """Watch a layer; ``module``: any that is gathered with it."""
        assert isinstance(module, FSDPModule)
        self.sharded, self.name, self.module = sharded, name, module
        self.kind = type(module).__name__.removeprefix("FSDP")
        group: Any = module._get_fsdp_state()._fsdp_param_group
        self.parameters = group.fsdp_params if group is not None else []
        self._addresses: list[int] = []
        self._held = self._gradients = 0
        if group is None:
            return
        self.whole_bytes = sum(
            one._orig_size.numel() * one._sharded_local_tensor.element_size()
            for one in self.parameters
        )
        self.own_bytes = sum(
            one._sharded_local_tensor.numel() * one._sharded_local_tensor.element_size()
            for one in self.parameters
        )
        module.set_gradient_divide_factor(1.0)  # the loss is weighed: gradients add up
        module.set_force_sum_reduction_for_comms(True)
        gather: Any = Gather(self)
        scatter: Any = ReduceScatter(self)
        module.set_custom_all_gather(gather)
        module.set_custom_reduce_scatter(scatter)
        # No hook says when a layer is there, or gone: these two calls of FSDP's own do both.
        group._to_unsharded = _then(group._to_unsharded, self._look)
        group._to_sharded = _then(group._to_sharded, self._look)
        post_backward = _first(self._weigh_gradients, group.post_backward)
        group.post_backward = _then(post_backward, self.reduced)  # of one rank there is no call

    def _look(self) -> None:
        """Record whether more or less of this layer is on the rank than at the last look."""
        memory, job = self.sharded.memory, self.sharded.job
        storages = [
            storage
            for one in self.parameters
            for tensor in getattr(one, "all_gather_outputs", [])
            if (storage := tensor.untyped_storage()).nbytes()
        ]
        held = sum(storage.nbytes() for storage in storages)
        if held == self._held:
            return
        memory.not_ours(self._addresses)
        self._addresses = [storage.data_ptr() for storage in storages]
        memory.ours(self._addresses)
        change, self._held = held - self._held, held
        memory.change(GATHERED, change, self.name)
        lane, moment = job.recorder.lane("compute"), now()
        lane.context(where=job.recorder.where)
        lane.write(
            _METRIC,
            moment,
            moment,
            value=float(abs(change)),
            name=job.recorder.name("gathered" if change > 0 else "freed"),
            phase=job.recorder.name(self.name),
        )
        self.sharded.note()

    def _weigh_gradients(self) -> None:
        """Count the layer's whole gradients, which are about to be reduced."""
        grads = [
            one.unsharded_param.grad for one in self.parameters if hasattr(one, "_unsharded_param")
        ]
        self._gradients = sum(grad.untyped_storage().nbytes() for grad in grads if grad is not None)
        self.sharded.memory.change(UNREDUCED, self._gradients, self.name)
        self.sharded.note()

    def reduced(self) -> None:
        """Stop counting the whole gradients: FSDP has copied them into its buffer."""
        if self._gradients:
            self.sharded.memory.change(UNREDUCED, -self._gradients, self.name)
            self._gradients = 0

    def values(self) -> dict[str, torch.Tensor]:
        """Return copies of the layer's parameters, which are gathered now."""
        parameters = {id(one.unsharded_param) for one in self.parameters}
        return {
            name: value.detach().cpu().clone()
            for name, value in self.sharded.model.named_parameters(remove_duplicate=False)
            if id(value) in parameters
        }


class _Comm:
    """A collective of one layer, with its name and its buffers counted."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        result = torch.empty(*size, dtype=dtype, device=device)
        return self.layer.sharded.memory.buffer(result, self.layer.name)


class Gather(_Comm):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        async_op: bool = False,
    ) -> Any:
        sharded, before = self.layer.sharded, self.layer.sharded.job.recorder.where
        if sharded.model.training:
            with sharded.job.label(self.layer.name):
                return all_gather_single(output_tensor, input_tensor, group, async_op)
        sharded.job.recorder.where = Where()  # of measuring, not of training
        try:
            with sharded.job.label(self.layer.name):
                return all_gather_single(output_tensor, input_tensor, sharded.metrics, async_op)
        finally:
            sharded.job.recorder.where = before


class ReduceScatter(_Comm):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        self.layer.reduced()
        with self.layer.sharded.job.label(self.layer.name):
            return reduce_scatter_single(output_tensor, input_tensor, op, group, async_op)


def _look_ahead(modules: list[Any], ahead: int) -> None:
    """Gather the next ``ahead`` layers early in forward, and the previous ones in backward."""
    for at, module in enumerate(modules):
        # Of itself, which is there: a list that is empty means FSDP's own choice.
        module.set_modules_to_backward_prefetch(modules[max(0, at - ahead) : at][::-1] or [module])
        module.set_modules_to_forward_prefetch(modules[at + 1 : at + 1 + ahead])
    if ahead and modules:
        modules[-1]._set_unshard_async_op(True)


def _then(call: Callable[..., Any], after: Callable[[], None]) -> Callable[..., Any]:
    def both(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        after()
        return result

    return both


def _first(before: Callable[[], None], call: Callable[..., Any]) -> Callable[..., Any]:
    def both(*args: Any, **kwargs: Any) -> Any:
        before()
        return call(*args, **kwargs)

    return both
