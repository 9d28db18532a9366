"""Flax modules, wrapped so that they serve as Equinox modules."""

from __future__ import annotations

from typing import Any

import equinox as eqx

from simjax.errors import ConfigurationError


class FlaxModule(eqx.Module):
    """A module of Flax that is called, trained and saved as one of Equinox: its arrays are leaves; see `from_flax`."""

    arrays: Any
    definition: Any = eqx.field(static=True)
    is_linen: bool = eqx.field(static=True)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The result of the module; of Flax NNX, changes of its variables are forgotten."""
        if self.is_linen:
            return self.definition.apply(self.arrays, *arguments, **named)
        from flax import nnx

        return nnx.merge(self.definition, self.arrays)(*arguments, **named)


def from_flax(module: Any, variables: Any = None) -> FlaxModule:
    """A module of Flax as one of Equinox, such as a `Closure` takes.

    Args:
        module: of Linen or of NNX.
        variables: of Linen: what `module.init(key, ...)` returned.

    Raises:
        ConfigurationError: it is no module of Flax, or its variables are missing.

    Examples:
        >>> from flax import linen
        >>> layer = linen.Dense(2)
        >>> module = sj.from_flax(layer, layer.init(jax.random.key(0), jnp.ones(3)))
        >>> module(jnp.ones(3)).shape
        (2,)
    """
    from flax import linen, nnx

    if isinstance(module, linen.Module):
        if variables is None:
            raise ConfigurationError(
                "from_flax: expected the variables of a Linen module; write from_flax(module, module.init(key, ...))."
            )
        return FlaxModule(variables, module, True)
    if isinstance(module, nnx.Module):
        definition, state = nnx.split(module)
        return FlaxModule(state, definition, False)
    raise ConfigurationError(f"from_flax: expected a module of Flax, got {type(module).__name__}.")
