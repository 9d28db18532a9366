"""Measurements and converged solutions of others, with which tests and the figures of the pages compare."""

# The velocity along the middle lines of a lid-driven cavity at Re = 100, from converged second-order solutions on up to
# 512^2 cells, in agreement with Ghia, Ghia and Shin (1982), J. Comput. Phys. 48, 387, at their points: u at (0.5, y),
# v at (x, 0.5).
CAVITY_Y = [0.0625, 0.1016, 0.1719, 0.2813, 0.4531, 0.5, 0.6172, 0.7344, 0.8516, 0.9531]
CAVITY_U = [-0.04198, -0.06441, -0.10173, -0.15765, -0.21398, -0.20915, -0.13881, 0.00415, 0.23644, 0.69118]
CAVITY_X = [0.0625, 0.0938, 0.1563, 0.2266, 0.5, 0.8047, 0.8594, 0.9063, 0.9453, 0.9688]
CAVITY_V = [0.09481, 0.12638, 0.16480, 0.17936, 0.05754, -0.25354, -0.23371, -0.17716, -0.10851, -0.06229]

# The same at Re = 1000: least u, largest and least v. Botella and Peyret (1998), Comput. Fluids 27, 421, table 9.
CAVITY_1000 = (-0.3885698, 0.3769447, -0.5270771)

# Cylinder in a channel: drag and lift at Re = 20; largest drag and lift and Strouhal number at Re = 100. Schaefer and
# Turek (1996), Notes Numer. Fluid Mech. 52, 547, cases 2D-1 and 2D-2, by converged solutions in their intervals.
CYLINDER_20 = (5.57953523384, 0.010618948146)
CYLINDER_100 = (3.227393, 0.986571, 0.301841)

# Mean velocity of a channel at Re_tau = 178.12 in wall units, y+ and U+, some of the places. Moser, Kim and Mansour
# (1999), Phys. Fluids 11, 943.
CHANNEL_PLACE = [
    2.6224,
    5.3381,
    8.9902,
    13.559,
    19.019,
    25.342,
    30.019,
    37.701,
    46.143,
    55.3,
    65.123,
    75.559,
    86.55,
    98.037,
    109.96,
    122.25,
    134.84,
    147.67,
    160.66,
    173.75,
]
CHANNEL_VELOCITY = [
    2.5939,
    5.1133,
    7.9052,
    10.311,
    12.066,
    13.276,
    13.87,
    14.557,
    15.101,
    15.569,
    15.993,
    16.389,
    16.756,
    17.094,
    17.4,
    17.672,
    17.911,
    18.103,
    18.235,
    18.297,
]

# Dissipation of the Taylor-Green vortex at Re = 100: a converged spectral solution with 64^3 points.
VORTEX_TIME = [0, 1, 2, 3, 4, 5, 6, 8, 10]
VORTEX_DISSIPATION = [
    0.0075,
    0.0077686,
    0.0092658,
    0.0112197,
    0.0125755,
    0.0129686,
    0.0122987,
    0.0087076,
    0.0052848,
]

# A column twice as high as wide (n^2 = 2, a = 2.25 inches): T = t (2 g / a)^(1/2) when the front is at Z = z / a.
# Martin and Moyce (1952), Phil. Trans. R. Soc. Lond. A 244, 312, table 2, from Z = 1.89 on.
FRONT_TIME = [1.63, 1.83, 1.98, 2.20, 2.32, 2.51, 2.65, 2.83, 2.98, 3.11, 3.33]
FRONT = [1.89, 2.11, 2.33, 2.56, 2.78, 3.00, 3.22, 3.44, 3.67, 3.89, 4.11]

# kT, density -> U / N and p of the Lennard-Jones fluid with its full potential, from NIST's Standard Reference
# Simulation Website (SRD 173): Monte Carlo with a cutoff at 3 and corrections for the rest.
LENNARD_JONES = {
    (0.85, 0.009): (-9.3973e-2, 7.1641e-3),
    (0.85, 0.776): (-5.5121, 6.7714e-3),
    (0.85, 0.82): (-5.7947, 0.55355),
    (0.90, 0.009): (-8.9936e-2, 7.6363e-3),
    (0.90, 0.82): (-5.7456, 0.82386),
    (0.90, 0.86): (-5.9753, 1.5781),
}
