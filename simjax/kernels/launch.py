import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def launch(program, arrays, interior, *, target, tile=None):
    def body(*refs):
        ins, outs = refs[: len(arrays)], refs[len(arrays) :]

        def read(k, component=None, offset=None):
            if component is None:
                return ins[k][...]
            op = program.operands[k]
            idx = tuple(slice(0, 1) if e is None else slice(o, o + n) for o, n, e in zip(offset, interior, op.extents, strict=True))
            return ins[k][(component, *idx)]

        for out, value in zip(outs, program.evaluate(read), strict=True):
            out[...] = jnp.broadcast_to(value, interior)

    return pl.pallas_call(body, out_shape=[jax.ShapeDtypeStruct(interior, d) for d in program.results], interpret=True)(*arrays)
