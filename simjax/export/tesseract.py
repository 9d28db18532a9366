"""An exported program as a Tesseract: the files that `tesseract build` and `Tesseract.from_tesseract_api` read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simjax.io.replacing import EXPORTED

API_NAME, CONFIG_NAME, REQUIREMENTS_NAME = EXPORTED[3:]
API = Path(__file__).with_name("tesseract_api.txt")
"""The endpoints, which read the program and its description beside them; its own file, as simjax never imports it."""
PLACE = "/tesseract"
"""Folder of `tesseract_api.py` in the container."""


def tesseract_files(meta: Mapping[str, Any], data: tuple[str, ...]) -> dict[str, bytes]:
    """Contents of the files of a Tesseract by name, for an export that `meta` describes and whose files are `data`."""
    config = {
        "name": f"{meta['experiment']}-{meta['what']}".replace("_", "-").lower(),
        "version": "1.0.0",
        "description": meta["title"],
        "build_config": {"package_data": [[name, f"{PLACE}/{name}"] for name in data]},
    }
    requirements = [f"jax>={meta['versions']['jax']}", "flatbuffers"]
    return {
        API_NAME: API.read_bytes(),
        CONFIG_NAME: f"{json.dumps(config, indent=1)}\n".encode(),  # JSON is YAML
        REQUIREMENTS_NAME: "\n".join([*requirements, ""]).encode(),
    }
