"""Tables of Runge-Kutta schemes by diffrax, which only this module imports: that takes 0.4 CPU s."""

import diffrax

TSIT5 = diffrax.Tsit5.tableau
BOSH3 = diffrax.Bosh3.tableau
DOPRI8 = diffrax.Dopri8.tableau
KVAERNO5 = diffrax.Kvaerno5.tableau
KENCARP4 = diffrax.KenCarp4.tableau
SHARK = diffrax.ShARK.tableau
