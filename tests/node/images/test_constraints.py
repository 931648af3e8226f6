"""Every distribution is pinned by version and hash, without an address, and the files agree."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.images.building import REPOSITORY

FILES = ("constraints.txt", "constraints-runtime.txt")
INTEGRATIONS = "constraints-integrations.txt"
ENTRY = re.compile(r"(\S+)==(\S+)(?: ; [^\\\n]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def pins(file: str) -> dict[str, str]:
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    found = ENTRY.findall(text)
    # Nothing else is in it: no address, no option, no requirement without a hash.
    assert "".join(match[0] for match in ENTRY.finditer(text)) == text
    return {canonicalize_name(name): version for name, version, _ in found}


@pytest.mark.parametrize("file", [*FILES, INTEGRATIONS])
def test_every_distribution_has_a_version_and_hashes_and_the_file_contains_nothing_else(file: str) -> None:
    assert len(pins(file)) > 50


def test_both_files_agree() -> None:
    development, runtime = (pins(file) for file in FILES)
    assert set(runtime) - set(development) == {"pip"}
    assert {name: version for name, version in runtime.items() if name != "pip"}.items() <= development.items()


def test_the_frameworks_are_tested_beside_the_versions_of_development() -> None:
    development, integrations = pins(FILES[0]), pins(INTEGRATIONS)
    # MLflow needs an older cachetools.
    shared = set(development) & set(integrations) - {"cachetools"}
    assert {name: integrations[name] for name in shared} == {name: development[name] for name in shared}


@pytest.mark.parametrize(
    ("file", "extras"),
    [
        ("constraints.txt", ["dev"]),
        ("constraints-runtime.txt", ["operator", "agent"]),
        (INTEGRATIONS, ["test-integrations", "torch", "huggingface", "lightning", "accelerate", "keras"]),
    ],
)
def test_the_projects_requirements_are_pinned_within_their_bounds(file: str, extras: list[str]) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = pins(file)
    asked = [Requirement(each) for extra in extras for each in project["optional-dependencies"][extra]]
    for requirement in asked:
        if requirement.name != "wattloop":
            assert requirement.specifier.contains(found[canonicalize_name(requirement.name)]), requirement
