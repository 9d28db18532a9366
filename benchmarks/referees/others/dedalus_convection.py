"""Rolls of `referees/dedalus.py` in Dedalus, to the steady state: `dedalus_convection.py PROBLEM.json FOUND.json`."""

import json
import sys

import dedalus
import dedalus.public as d3
import numpy as np


def steady(rayleigh, prandtl, width, modes, dt, end):
    """Nusselt number of the heat that the flow carries, kinetic energy per area, and both at nine tenths of the time.

    Fourier modes along, Chebyshev polynomials across, tau terms as in Dedalus's own example of this flow.
    """
    coords = d3.CartesianCoordinates("x", "z")
    dist = d3.Distributor(coords, dtype=np.float64)
    along = d3.RealFourier(coords["x"], size=modes[0], bounds=(0, width), dealias=3 / 2)
    across = d3.ChebyshevT(coords["z"], size=modes[1], bounds=(0, 1), dealias=3 / 2)
    bases = (along, across)
    p, T, u = dist.Field(bases=bases), dist.Field(bases=bases), dist.VectorField(coords, bases=bases)
    tau_p, (tau_T1, tau_T2) = dist.Field(), (dist.Field(bases=along) for _ in range(2))
    tau_u1, tau_u2 = (dist.VectorField(coords, bases=along) for _ in range(2))
    _, up = coords.unit_vector_fields(dist)
    kappa, nu = (rayleigh * prandtl) ** -0.5, (prandtl / rayleigh) ** 0.5
    lifted = across.derivative_basis(1)
    names = {
        "p": p,
        "T": T,
        "u": u,
        "up": up,
        "kappa": kappa,
        "nu": nu,
        "tau_p": tau_p,
        "tau_T2": tau_T2,
        "tau_u2": tau_u2,
        "lift": lambda tau: d3.Lift(tau, lifted, -1),
        "grad_T": d3.grad(T) + up * d3.Lift(tau_T1, lifted, -1),
        "grad_u": d3.grad(u) + up * d3.Lift(tau_u1, lifted, -1),
    }
    problem = d3.IVP([p, T, u, tau_p, tau_T1, tau_T2, tau_u1, tau_u2], namespace=names)
    for equation in (
        "trace(grad_u) + tau_p = 0",
        "dt(T) - kappa*div(grad_T) + lift(tau_T2) = - u@grad(T)",
        "dt(u) - nu*div(grad_u) + grad(p) - T*up + lift(tau_u2) = - u@grad(u)",
        "T(z=0) = 0.5",
        "u(z=0) = 0",
        "T(z=1) = -0.5",
        "u(z=1) = 0",
        "integ(p) = 0",
    ):
        problem.add_equation(equation)
    solver = problem.build_solver(d3.RK222)
    x, z = dist.local_grids(*bases)
    T["g"] = 0.5 - z + 0.1 * np.cos(2 * np.pi * x / width) * np.sin(np.pi * z)

    def measured():
        carried = d3.Integrate((up @ u) * T).evaluate()["g"].item() / width
        energy = d3.Integrate(0.5 * (u @ u)).evaluate()["g"].item() / width
        return {"nusselt": 1 + carried / kappa, "energy": energy}

    before, steps = None, round(end / dt)
    for step in range(steps):
        if step == round(0.9 * steps):
            before = measured()
        solver.step(dt)
    return {**measured(), "before": before}


def main():
    asked, told = sys.argv[1:]
    with open(asked, encoding="utf-8") as problems:
        found = {name: steady(**problem) for name, problem in json.load(problems).items()}
    with open(told, "w", encoding="utf-8") as result:
        json.dump({"version": dedalus.__version__, "found": found}, result)


if __name__ == "__main__":
    main()
