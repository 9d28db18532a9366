"""Mistakes in the methods of a user's model are sentences that name the class, the field, and what was expected."""

import jax.numpy as jnp
import numpy as np
import pytest

import simjax as sj
from simjax.errors import ConfigurationError

PERIODIC = (sj.PeriodicSide(), sj.PeriodicSide())
DOMAIN = sj.Domain(sj.Grid((4, 4)))
U = jnp.ones((4, 4))


class Pair(sj.CenteredModel):
    """Two fields, whose tendency is what `answer` makes of the state."""

    fields = ("u", "v")
    parameters = {"k": 1.0}
    answer = staticmethod(lambda state, params: dict(state))

    def rhs(self, t, state, params):
        return type(self).answer(state, params)

    def stable_dt(self, state, params):
        return 1.0


def step_of(kind, state, scheme="rk4"):
    """One step of a model, traced."""
    params = {"k": jnp.asarray(1.0)}
    return sj.simulate(
        kind(DOMAIN, [PERIODIC] * 2), sj.INTEGRATORS[scheme], params, state, sj.Schedule(0.1, dt=0.1), frames=1
    )


@pytest.mark.parametrize("scheme", ["rk4", "ssprk3", "williamson3"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda s, p: {"u": s["u"]}, "'v' is missing; expected tendencies of 'u', 'v', got 'u'"),
        (lambda s, p: {**s, "w": s["u"]}, "'w' is no field of the state; expected tendencies of 'u', 'v', got 'u', "),
        (lambda s, p: {**s, "v": None}, "expected tendencies of u, v, got u; v is missing"),
        (lambda s, p: s["u"], r"expected a dict as the state is, got an array of shape \(4, 4\) and type float64"),
        (lambda s, p: (s["u"], s["v"]), "expected a dict as the state is, got a tuple"),
        (lambda s, p: {**s, "v": s["v"][1:]}, r"tendency of v: expected an array of shape \(4, 4\) .* shape \(3, 4\)"),
        (lambda s, p: {**s, "v": s["v"].astype("float32")}, r"tendency of v: .* got .* and type float32"),
        (lambda s, p: {**s, "v": 0.0}, "tendency of v: .* got 0.0, which is no array"),
        (lambda s, p: {**s, "v": p["growth"]}, r", line \d+ of .*test_own_mistakes\.py: there is no key 'growth'"),
        (lambda s, p: {**s, "v": s["u"] @ jnp.ones(3)}, r", line \d+ of .*mistakes\.py: TypeError: dot_general"),
    ],
)
def test_a_wrong_tendency_is_a_sentence(answer, words, scheme):
    kind = type("Own", (Pair,), {"answer": staticmethod(answer), "__doc__": "A model of a user's own."})
    with pytest.raises(ConfigurationError, match=rf"^Own\.rhs(: )?(the )?{words}"):
        step_of(kind, {"u": U, "v": U}, scheme)


def test_a_right_tendency_is_taken():
    end = step_of(Pair, {"u": U, "v": 2 * U}).state
    np.testing.assert_allclose(end["v"], 2 * np.exp(0.1), rtol=1e-6)  # (0.1)^5 / 5! of the fourth order


def test_a_wrong_state_of_a_flow_is_named_by_its_class():
    class Still(sj.Incompressible):
        """A flow whose tendency is a dict."""

        def rhs(self, t, state, params):
            return {"velocity": state.velocity}

    model = Still(DOMAIN, [PERIODIC] * 2)
    params, state = model.Params(jnp.asarray(1.0), jnp.asarray(0.0)), model.State((U, U))
    with pytest.raises(ConfigurationError, match=r"Still\.rhs: expected a State as the state is, got a dict"):
        sj.simulate(model, sj.INTEGRATORS["rk4"], params, state, sj.Schedule(0.1, dt=0.1), frames=1)


@pytest.mark.parametrize(
    ("symbol", "nonlinear", "words"),
    [
        ({"w": 0.0}, {}, r"Wave\.symbol: expected a dict of eigenvalues of u, got those of w"),
        (0.0, {}, r"Wave\.symbol: expected a dict of eigenvalues of u, got a float"),
        ({"u": 0.0}, {}, r"Wave\.nonlinear: 'u' is missing; expected tendencies of 'u', got none"),
    ],
)
@pytest.mark.slow
def test_a_wrong_spectral_term_is_a_sentence(symbol, nonlinear, words):
    class Wave(sj.SpectralModel):
        """A wave of a user's own."""

        def symbol(self, k, params):
            return symbol

        def nonlinear(self, t, k, state, params):
            return nonlinear

    model = Wave(DOMAIN, [PERIODIC] * 2)
    state = {"u": model.to_spectrum(U)}
    with pytest.raises(ConfigurationError, match=words):
        sj.simulate(model, sj.INTEGRATORS["etdrk4"], {"k": jnp.asarray(1.0)}, state, sj.Schedule(0.1, dt=0.1), frames=1)


def test_noise_of_a_spectral_model_is_refused_where_its_class_is_defined():
    with pytest.raises(ConfigurationError, match=r"Noisy\.noise: a SpectralModel draws no noise; derive from sj\."):

        class Noisy(sj.SpectralModel):
            """Noise that no scheme would draw."""

            def symbol(self, k, params):
                return {"u": 0.0}

            def nonlinear(self, t, k, state, params):
                return {"u": state["u"]}

            def noise(self, t, state, params):
                return {"u": 1.0}
