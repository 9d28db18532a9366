"""Commands of the README and the pages validate, links lead somewhere, YAML is read; `test_pages` runs the rest."""

import re

import pytest
import yaml
from paths import ROOT

from simjax.config import compose, load_config
from simjax.errors import ConfigurationError

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_is_read_in_two_minutes():
    assert len(README.splitlines()) <= 120


def test_the_experiment_of_the_readme_is_one(tmp_path):
    (text,) = blocks("README.md", "yaml")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "jet.yaml").write_text(text)
    config = load_config("jet", config_dir=tmp_path)
    (tmp_path / "experiment" / "jet.yaml").write_text(f"# A jet\n{text}")
    with pytest.raises(ConfigurationError, match="write '# @package _global_' as its first line"):
        load_config("jet", config_dir=tmp_path)
    assert (config.model, config.mesh.x, config.ensemble.size) == ("passive_scalar", 2, 4)


def pages():
    return ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


# Files that a block of the page writes; test_pages.py tries their commands.
MADE = ("my_pde", "dye.nc", "square.npz", "atoms.npz")
LINES = {
    (page, line): None
    for page in pages()
    for line in re.findall(
        r"^python -m simjax.run ((?:-m )?(?:experiment|model)=.*?)(?:\s+#.*)?$",
        (ROOT / page).read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    if not any(made in line for made in MADE) and not line.endswith("\\")
}


@pytest.mark.parametrize(("page", "line"), LINES)
def test_command_composes_and_validates(page, line):
    overrides = [part.strip("'") for part in re.split(r"\s(?=(?:[^']*'[^']*')*[^']*$)", line) if part != "-m"]
    # A sweep takes several values of a key; one of them is enough here.
    first = [re.sub(r"^(seed=)\D*(\d+)[,\d)]*$", r"\1\2", part) for part in overrides]
    first = [re.sub(r"=choice\(([^,]*),.*\)$", r"=\1", part) for part in first]
    config = compose([part for part in first if "hydra" not in part]).config()
    assert config.experiment_name in line or config.model in line


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), f"{page} links to {target}, which is not there"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, f"{page} links to #{anchor} of {file.name}, which has {sorted(anchors)}"


def test_yaml_of_the_pages_is_yaml():
    for page in pages():
        for text in blocks(page, "yaml"):
            assert isinstance(yaml.safe_load(text), dict), page


def test_the_two_commands_are_there_for_continuous_integration():
    for name in ("run", "test"):
        assert re.search(rf"<!-- command: {name} -->\n```sh\npython3 -m venv", README)
