"""The layer check finds imports that go up, and libraries away from home."""

from __future__ import annotations

from tools.check_layers import check, package_order
from tools.tree import Source

ARCHITECTURE = """
## Package

```
0 errors.py  env.py
1 formats/      bytes on disk
  text/         text
2 backends/base.py  the protocol
  sampling/     picks
  backends/     run steps
6 cli/
```
"""


def upward(low: str, high: str) -> list[str]:
    return [f"`{low}` stands above `{high}` in the table and must not import it"]


def messages(path: str, text: str) -> list[str]:
    return [finding.message for finding in check([Source(f"src/paceline/{path}", text)], ARCHITECTURE)]


def test_table_orders_levels_and_packages_within_a_level() -> None:
    assert package_order(ARCHITECTURE) == dict(
        zip(["errors", "env", "formats", "text", "backends.base", "sampling", "backends", "cli"], range(8), strict=True)
    )


def test_importing_downwards_is_fine() -> None:
    assert messages("text/tokenizer.py", "from paceline import errors\nfrom paceline.formats.gguf import read\n") == []


def test_importing_a_higher_level_is_found() -> None:
    assert messages("formats/gguf.py", "import paceline.backends.null\n") == [
        "`formats` stands above `backends` in the table and must not import it"
    ]


def test_importing_a_later_package_of_the_same_level_is_found() -> None:
    assert len(messages("formats/gguf.py", "from paceline.text import chat\n")) == 1


def test_relative_and_nested_imports_are_resolved() -> None:
    assert messages("text/chat.py", "def f():\n    from ..backends import null\n") == [
        "`text` stands above `backends` in the table and must not import it"
    ]
    assert messages("text/chat.py", "from . import tokenizer\nfrom ..formats import gguf\n") == []


def test_file_of_a_package_may_have_a_level_of_its_own() -> None:
    assert messages("sampling/draw.py", "from paceline.backends.base import Draws\n") == []
    assert messages("sampling/draw.py", "from paceline.backends.null import NullBackend\n") == upward("sampling", "backends")
    assert messages("backends/base.py", "from paceline.sampling import draw\n") == upward("backends.base", "sampling")


def test_library_away_from_home_is_found() -> None:
    assert messages("text/chat.py", "import jinja2\n") == []
    assert messages("text/tokenizer.py", "import jinja2\n") == ["`jinja2` is imported only in text/chat.py"]
    assert messages("cli/main.py", "from transformers import AutoModel\n") == ["`transformers` is imported only in tests and benchmarks"]


def test_library_with_a_similar_name_is_fine() -> None:
    assert messages("cli/main.py", "import torchlike\n") == []


def test_environment_is_read_in_env_alone() -> None:
    assert messages("env.py", "import os\nos.environ['A']\n") == []
    assert messages("cli/main.py", "import os\nos.getenv('A')\n") == ["the environment is read in env.py alone"]


def test_package_without_a_level_is_found() -> None:
    assert messages("extra/thing.py", "") == ["`extra/thing.py` has no level in ARCHITECTURE.md's package table"]
