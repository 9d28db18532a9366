"""Inverse problems on configured simulations: from the section `inverse` to an answer in a folder."""
