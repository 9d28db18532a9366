def choose(domain, dtype): return "spectral"
