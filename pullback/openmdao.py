"""Ops of a service as components of OpenMDAO, with partial derivatives or matrix-free products.

::

    from pullback.openmdao import RemoteComponent

    model.add_subsystem("norm", RemoteComponent("safe_norm", "http://127.0.0.1:8000", shapes={"x": 3}))
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import openmdao.api as om

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.arrays import plain
from pullback.catalogue import Slot
from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.remotes import Jacobians, Remote, TensorType, evaluate

__all__ = ["RemoteComponent"]


class RemoteComponent(om.ExplicitComponent):
    """An op of a service as an explicit component.

    Its inputs and outputs are those of the contract; those without a float dtype, such as labels, are discrete. Its
    options are the op's attributes. Entries of the Jacobian that are 0 for the op's independent rows are not declared.

    It raises the errors of the client, ``pullback.PullbackError``.
    """

    def __init__(
        self,
        op: str,
        url: str | None = None,
        shapes: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        *,
        mode: str | None = None,
        api_key: str | None = None,
        units: Mapping[str, str] | None = None,
        matrix_free: bool = False,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        deadline: float | None = None,
        **options: Any,
    ) -> None:
        """Request the contract. ``shapes`` are those of the inputs, ``units`` those of inputs and outputs, by name.

        With ``matrix_free``, solvers get products with the Jacobian in place of its entries. The other arguments are
        those of ``pullback.jax.remote``, and ``options`` those of OpenMDAO.
        """
        self._remote = Remote(op, url, attrs, mode, api_key, headers=headers, timeout=timeout, deadline=deadline)
        self._shapes, self._units = dict(shapes or {}), dict(units or {})
        self._jacobians: Jacobians | None = None
        self._is_differentiated = False
        self._attributes = list[str]()
        super().__init__(**options)
        self.matrix_free = matrix_free

    def initialize(self) -> None:
        """Declare the attributes as options; one with the name of an option of OpenMDAO is set by ``attrs`` alone."""
        for name, schema in self._remote.contract().attr_schemas.items():
            if name not in self.options:
                given = {**schema, **({"default": self._remote.attrs[name]} if name in self._remote.attrs else {})}
                default = {"default": given["default"]} if "default" in given else {}
                self.options.declare(name, values=given.get("enum"), desc=given.get("description", ""), **default)
                self._attributes.append(name)

    def setup(self) -> None:
        """Declare inputs, outputs and partial derivatives."""
        self._jacobians = of = Jacobians.of(self._remote.with_attrs(self._attrs()), self._shapes)
        contract = of.p.remote.contract()
        names = [slot.name for slot in (*contract.inputs, *contract.outputs)]
        if unknown := [name for name in self._units if name not in names]:
            raise BadArgument(f"units: expected inputs and outputs ({', '.join(names)}), got {', '.join(unknown)}")
        self._declare(contract.inputs, of.inputs, self.add_input, self.add_discrete_input)
        self._declare(contract.outputs, of.outputs, self.add_output, self.add_discrete_output)
        for (o, i), pattern in of.patterns.items():
            places = {} if pattern.is_dense else {"rows": pattern.rows, "cols": pattern.columns}
            if not self.matrix_free:
                self.declare_partials(contract.outputs[o].name, contract.inputs[i].name, **places)

    def compute(self, inputs: Any, outputs: Any, discrete_inputs: Any = None, discrete_outputs: Any = None) -> None:
        """Evaluate the op."""
        of, arrays = self._at(inputs, discrete_inputs)
        found = evaluate(of.p, arrays, ahead=self._is_differentiated) if self.matrix_free else of.values(arrays)
        for slot, value in zip(of.p.remote.contract().outputs, found, strict=True):
            if slot.name in outputs:
                outputs[slot.name] = value.reshape(outputs[slot.name].shape)
            else:
                discrete_outputs[slot.name] = value

    def compute_partials(self, inputs: Any, partials: Any, discrete_inputs: Any = None) -> None:
        """Evaluate the entries of the Jacobian, along with the outputs if they are not known yet."""
        of, arrays = self._at(inputs, discrete_inputs)
        contract = of.p.remote.contract()
        for (o, i), entries in of.entries(arrays).items():
            pattern = of.patterns[o, i]
            block = entries.reshape(pattern.shape) if pattern.is_dense else entries
            partials[contract.outputs[o].name, contract.inputs[i].name] = block

    def compute_jacvec_product(
        self, inputs: Any, d_inputs: Any, d_outputs: Any, mode: str, discrete_inputs: Any = None
    ) -> None:
        """Add the product of the Jacobian with a direction, or in mode ``rev`` of its transpose: one request."""
        of, arrays = self._at(inputs, discrete_inputs)
        self._is_differentiated = True
        p, contract = of.p, of.p.remote.contract()
        by_input = [(contract.inputs[i].name, of.inputs[i]) for i in p.differentiable_inputs]
        by_output = [(contract.outputs[o].name, of.outputs[o]) for o in p.differentiable_outputs]
        if mode == "fwd":
            derivative, given, seeds, wanted, results = p.jvp, d_inputs, by_input, d_outputs, by_output
        else:
            derivative, given, seeds, wanted, results = p.vjp, d_outputs, by_output, d_inputs, by_input
        directions = [
            np.asarray(given[name], t.dtype).reshape(t.shape) if name in given else np.zeros(t.shape, t.dtype)
            for name, t in seeds
        ]
        if any(name in wanted for name, _ in results):
            found = evaluate(derivative, [*arrays, *directions])
            for (name, _), product in zip(results, found, strict=True):
                if name in wanted:
                    wanted[name] += product.reshape(wanted[name].shape)

    def _declare(self, slots: Sequence[Slot], types: Sequence[TensorType], add: Any, add_discrete: Any) -> None:
        for slot, t in zip(slots, types, strict=True):
            if t.dtype.kind == "f":
                add(slot.name, shape=t.shape or (1,), units=self._units.get(slot.name), desc=slot.doc)
            else:
                add_discrete(slot.name, np.zeros(t.shape, t.dtype), desc=slot.doc)

    def _at(self, inputs: Any, discrete_inputs: Any) -> tuple[Jacobians, list[Array]]:
        """Return the op with the attributes that the options have now, and its inputs."""
        if self.under_complex_step:
            raise BadArgument(
                f"{self._remote.name}: the service computes with real numbers, so expected exact derivatives or finite "
                "differences (method='fd'), got a complex step"
            )
        of, attrs = self._jacobians, self._attrs()
        if attrs != of.p.remote.attrs:
            new = Jacobians.of(self._remote.with_attrs(attrs), self._shapes)
            if new.outputs != of.outputs or not all(new.patterns[at].equals(of.patterns[at]) for at in of.patterns):
                raise BadArgument(f"{self._remote.name}: these options change shapes or sparsity: call setup again")
            self._jacobians = of = new
        arrays = list[Array]()
        for slot, t in zip(of.p.remote.contract().inputs, of.inputs, strict=True):
            if t.dtype.kind == "f":
                arrays.append(np.array(inputs[slot.name], t.dtype).reshape(t.shape))
            else:
                arrays.append(np.asarray(discrete_inputs[slot.name]))
        return of, arrays

    def _attrs(self) -> dict[str, Any]:
        """Return the attributes whose options differ from the defaults, and those that are not options."""
        schemas = self._remote.contract().attr_schemas
        given = {name: value for name, value in self._remote.attrs.items() if name not in self._attributes}
        options = {name: plain(self.options[name]) for name in self._attributes}
        return {**given, **{name: x for name, x in options.items() if x != schemas[name].get("default")}}
