"""The search for names that no code of the product reaches."""

from pathlib import Path

from unreached_names import Module, Search


def unreached(folder: Path, **sources: str) -> list[str]:
    """What is not reached from the module `start`."""
    modules = {}
    for name, source in sources.items():
        path = folder / f"{name}.py"
        path.write_text(source)
        modules[name] = Module(name, path)
        modules[name].read()
    search = Search(modules)
    search.reach("start")
    return [f"{module.name}:{name}" for module, name in search.unreached()]


def test_what_other_unreached_code_or_a_re_export_names_is_unreached(tmp_path: Path) -> None:
    found = unreached(
        tmp_path,
        start="import package\nfrom package import used\nused()\n",
        package="from parts import dead, used\n__all__ = ['dead', 'used']\n",
        parts="LIMIT = 3\n\ndef dead():\n    helper()\n\ndef helper():\n    dead()\n\ndef used():\n    return LIMIT\n",
    )
    assert found == ["parts:dead", "parts:helper"]


def test_a_method_is_reached_by_an_attribute_of_its_name_and_not_by_a_function(tmp_path: Path) -> None:
    store = "class Store:\n  def __init__(self):\n    self.read()\n  def read(self): ...\n  def write(self): ...\n"
    start = "from store import Store\n\ndef write(): ...\nwrite()\nStore()\n"
    assert unreached(tmp_path, start=start, store=store) == ["store:Store.write"]


def test_a_text_that_names_a_module_and_a_function_reaches_it(tmp_path: Path) -> None:
    found = unreached(tmp_path, start="run('job:main')\n", job="def main(): ...\n\ndef other(): ...\n")
    assert found == ["job:other"]


def test_a_name_of_another_module_does_not_reach_its_namesake(tmp_path: Path) -> None:
    found = unreached(
        tmp_path,
        start="import one\nimport two\none.Reading()\n",
        one="class Reading: ...\n",
        two="class Reading: ...\n",
    )
    assert found == ["two:Reading"]
