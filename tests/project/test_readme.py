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


def why_invalid(line):
    """Why a command of a page cannot be composed; empty if it can."""
    overrides = [part.strip("'") for part in re.split(r"\s(?=(?:[^']*'[^']*')*[^']*$)", line) if part != "-m"]
    # A sweep takes several values of a key; one of them is enough here.
    first = [re.sub(r"^(seed=)\D*(\d+)[,\d)]*$", r"\1\2", part) for part in overrides]
    first = [re.sub(r"=choice\(([^,]*),.*\)$", r"=\1", part) for part in first]
    try:
        config = compose([part for part in first if "hydra" not in part]).config()
    except ConfigurationError as error:
        return str(error)
    return "" if config.experiment_name in line or config.model in line else f"it is of {config.model}"


def test_commands_compose_and_validate():
    assert len(LINES) > 20
    assert {place: why for place in LINES if (why := why_invalid(place[1]))} == {}


def test_a_command_that_is_wrong_would_be_seen():
    assert "viscositie" in why_invalid("experiment=fluid physics.viscositie=1")


def lost_links(page, text):
    """Links of a page's text that lead nowhere."""
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
        file = (ROOT / page).parent / target if target else ROOT / page
        if not file.exists():
            yield f"{page} links to {target}, which is not there"
        elif anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            if anchor not in anchors:
                yield f"{page} links to #{anchor} of {file.name}, which has {sorted(anchors)}"


def test_links_lead_somewhere():
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in pages()}
    assert [lost for page, text in texts.items() for lost in lost_links(page, text)] == []


def test_a_link_that_is_lost_would_be_seen():
    assert len([*lost_links("README.md", "[a](docs/no.md), [b](docs/testing.md#no), [c](docs/testing.md#tests)")]) == 2


def test_yaml_of_the_pages_is_yaml():
    for page in pages():
        for text in blocks(page, "yaml"):
            assert isinstance(yaml.safe_load(text), dict), page


def test_the_two_commands_are_there_for_continuous_integration():
    for name in ("run", "test"):
        assert re.search(rf"<!-- command: {name} -->\n```sh\npython3 -m venv", README)
