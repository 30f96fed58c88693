"""How much an installation takes: `pip install .` into a fresh environment, its bytes counted: `python -m benchmarks.size`.

Promise: at most 250 MB on disk, pip and Python's own files in the environment included, and no torch among them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROMISE_MB = 250.0
IS_WHOLE = """
import paceline.engine.build, paceline.backends.native._core
from paceline.serve.static import FOLDER
assert (FOLDER / "index.html").exists(), "the page is missing"
"""
"""Run by the fresh environment's Python: what a user needs is there."""
FORBIDDEN = ("torch", "triton", "transformers")


def folder_bytes(folder: Path) -> int:
    """Bytes of all regular files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def main() -> int:
    """Install and measure; 1 when the promise is broken."""
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        root = Path(__file__).resolve().parent.parent
        python = Path(place) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", str(root)], check=True)
        subprocess.run([python, "-c", IS_WHOLE], check=True, cwd=place)
        packages = next((Path(place) / "lib").glob("python*/site-packages"))
        sizes = {path.name: folder_bytes(path) for path in packages.iterdir() if path.is_dir()}
        total = folder_bytes(Path(place)) / 1e6
    largest = dict(sorted(((name, round(size / 1e6, 1)) for name, size in sizes.items()), key=lambda item: -item[1])[:10])
    found = [name for name in FORBIDDEN if name in sizes]
    print(json.dumps({"promise_mb": PROMISE_MB, "total_mb": round(total, 1), "largest_mb": largest, "forbidden_found": found}))
    return 0 if total <= PROMISE_MB and not found else 1


if __name__ == "__main__":
    sys.exit(main())
