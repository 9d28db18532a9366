"""Operations as they are written for registers of a GPU, against jax's own, on arrays in place of registers."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from stencil_programs import Formula

from simjax.stencil.kernels import fragments
from simjax.stencil.kernels.operands import NotLowered, Operand

SHAPE = (1, 4)


class Registers(np.lib.mixins.NDArrayOperatorsMixin):
    """The part of a `FragmentedArray` that the rules use. Its layout is `even` or, of a number, none."""

    def __init__(self, values, layout, is_signed=None):
        self.registers, self.layout, self.is_signed = np.asarray(values), layout, is_signed

    @property
    def shape(self):
        return self.registers.shape

    @classmethod
    def splat(cls, value, shape, layout=None, *, is_signed=None):
        return cls(np.full(shape, value), layout, is_signed)

    def __array_ufunc__(self, ufunc, method, *inputs):
        layouts = {x.layout for x in inputs if x.shape}
        assert len(layouts - {None}) <= 1
        return Registers(ufunc(*(x.registers for x in inputs)), next(iter(layouts - {None}), None))

    def select(self, chosen, otherwise):
        assert self.registers.dtype == bool and chosen.registers.dtype == otherwise.registers.dtype
        values = np.where(self.registers, chosen.registers, otherwise.registers)
        return Registers(values, self.layout or chosen.layout or otherwise.layout)

    def astype(self, dtype, *, is_signed):
        assert self.registers.dtype != bool and is_signed == (True if dtype.kind == "i" else None)
        return Registers(self.registers.astype(dtype), self.layout, is_signed)

    def max(self, other):
        return np.maximum(self, other)

    def min(self, other):
        return np.minimum(self, other)

    def trunc_div(self, other):
        return Registers(np.trunc(self.registers / other.registers).astype(self.registers.dtype), self.layout)


for name, function in {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "abs": np.abs,
    "round_even": np.round,
    "round": lambda x: np.trunc(x + 0.5 * np.sign(x)),
}.items():
    setattr(Registers, name, lambda x, function=function: Registers(function(x.registers), x.layout))


@pytest.fixture
def gpu(monkeypatch):
    """A machine whose registers are arrays."""
    registers = SimpleNamespace(
        FragmentedArray=Registers,
        c=lambda value, dtype: np.asarray(value, dtype),
        utils=SimpleNamespace(dtype_to_ir_type=np.dtype),
    )
    monkeypatch.setattr(fragments, "_registers", lambda: registers)

    def inline(arg_types, return_type):
        def inlined(write):
            def run(*values):
                layouts = (kind.layout if x.shape else None for kind, x in zip(arg_types, values, strict=True))
                found = write(None, *(Registers(x, layout) for x, layout in zip(values, layouts, strict=True)))
                kinds = [(x.shape, x.registers.dtype, x.layout) for x in found]
                assert kinds == [(kind.shape, kind.dtype, kind.layout.layout) for kind in return_type]
                return [x.registers for x in found]

            return run

        return inlined

    def even(shape, vec_size):
        return SimpleNamespace(layout="even", to_mgpu=lambda: "even")

    return SimpleNamespace(
        Layout=SimpleNamespace(WG_STRIDED=even),
        layout_cast=lambda x, layout: x,
        inline_mgpu=inline,
        ShapeDtypeStruct=lambda shape, dtype, layout: SimpleNamespace(shape=shape, dtype=dtype, layout=layout),
    )


def both(gpu, formula, *arrays):
    """A formula of arrays by the rules for registers, and by jax."""
    operands = tuple(Operand(1, (0,) * len(x.shape) if x.shape else None, x.dtype) for x in arrays)
    expected = formula(*(jnp.asarray(x) for x in arrays))
    program = Formula(
        operands,
        (expected.dtype,),
        lambda read: [formula(*(read(k, 0, (0, 0)) if x.shape else read(k) for k, x in enumerate(arrays)))],
    )

    def read(k, component=0, offset=()):
        return arrays[k]

    types = [x.dtype for x in arrays]
    return fragments.computed(gpu, program, read, types, SHAPE)[0], np.broadcast_to(expected, SHAPE)


X = np.asarray([[-2.5, 0.25, 0.5, 3.5]], np.float32)
Y = np.asarray([[1.5, -0.5, 0.5, 2.0]], np.float32)
K = np.asarray([[-7, 3, 0, 5]], np.int32)


@pytest.mark.parametrize(
    "formula",
    [
        lambda x, y: x - y,
        lambda x, y: x / y + y * x - -x,
        lambda x, y: lax.max(x, y) + 2 * lax.min(x, y),
        lambda x, y: lax.clamp(jnp.float32(-1), x, jnp.float32(1.25)),
        lambda x, y: lax.select(x < y, x, y),
        lambda x, y: jnp.where((x <= y) & ((x > 1) ^ True) | (y == x) ^ (x >= 3), jnp.float32(2), x),
        lambda x, y: jnp.where(x != y, x, 1),
        lambda x, y: x**5 + y**2 + lax.integer_pow(y, 3) + lax.square(x),
        lambda x, y: jnp.abs(x) + jnp.exp(y) + jnp.exp2(x) + jnp.log(jnp.abs(y)) + lax.rsqrt(jnp.abs(x)),
        lambda x, y: jnp.sin(x) + jnp.cos(y) + jnp.tanh(x),
        lambda x, y: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN) + 10 * lax.round(x),
        lambda x, y: (x > y).astype(jnp.float32) + 2 * (x < 0).astype(jnp.int32).astype(jnp.float32),
        lambda x, y: jnp.full(SHAPE, 3.0, jnp.float32),
    ],
    ids=[
        "differences",
        "arithmetic",
        "extremes",
        "clamped",
        "selected",
        "logic",
        "unequal",
        "powers",
        "functions",
        "waves",
        "rounded",
        "converted",
        "one_number",
    ],
)
def test_operations_on_registers_are_those_of_jax(gpu, formula):
    found, expected = both(gpu, formula, X, Y)
    # A few roundings of single precision.
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_scalars_and_integers_are_read_as_they_are(gpu):
    found, expected = both(gpu, lambda x, a, k: x * a + lax.div(k, jnp.int32(2)).astype(x.dtype), X, np.float32(1.5), K)
    np.testing.assert_array_equal(found, expected)


def test_an_operation_without_a_rule_is_named(gpu):
    with pytest.raises(NotLowered, match="No kernel for a GPU computes atan2"):
        both(gpu, lambda x: lax.atan2(x, x), X)
