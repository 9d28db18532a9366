"""Small problems, one for each way in which models, walls and steps combine, for tests that run all of them.

Grids have another size along every axis, so that a mixed-up axis cannot go unnoticed, and stay divisible by all
meshes of eight devices used here.
"""

import cases_flow
import cases_gas
import cases_particles
import cases_spectral
import cases_transport
import cases_waves

CASES = (
    *cases_flow.CASES,
    *cases_gas.CASES,
    *cases_waves.CASES,
    *cases_spectral.CASES,
    *cases_transport.CASES,
    *cases_particles.CASES,
)
