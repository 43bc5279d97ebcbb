"""JAX: `malt.jax.Replica`, a pytree that ranks exchange. It needs the extra `jax`."""

try:
    import jax  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    remedy = "malt.jax needs JAX: pip install '.[jax]' in the checkout"
    raise ModuleNotFoundError(remedy, name="jax") from None

from malt.jax.replica import Replica

__all__ = ["Replica"]
