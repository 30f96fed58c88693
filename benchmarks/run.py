"""Run the cases of a suite and keep their results: `python -m benchmarks.run SUITE [CASE …]`; suites are `bench`, `prove`,
`peers` and `traces`.

The one idea: a case is a command that prints one JSON object and says by its exit code whether a promise was kept. This runner adds
what makes a figure worth keeping (command, machine, commit, moment) and writes `benchmarks/results/<case>.json`.

A case with `serves` runs against a server of that model, whose address stands for `{url}` in the command; `{traces}` stands for the folder
of recorded traces (`PACELINE_TRACES`).
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.server import running_server
from paceline import env
from paceline.bench.machine import machine_record

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent


@dataclass(frozen=True, slots=True)
class Case:
    """What is run, and why."""

    name: str
    suite: str
    about: str
    command: tuple[str, ...]
    serves: str | None = None


def load_cases(folder: Path) -> list[Case]:
    """Every case of a folder, by name. Errors: TypeError for a key that is no field of a case."""
    cases = []
    for path in sorted(folder.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        cases.append(Case(path.stem, **(table | {"command": tuple(table["command"])})))
    return cases


def run_case(case: Case) -> bool:
    """Run one case and write its result; whether it kept its promise."""
    print(f"{case.name}: {case.about} …", file=sys.stderr, flush=True)
    with ExitStack() as stack:
        url = stack.enter_context(running_server(case.serves)).url if case.serves else ""
        command = [word.replace("{url}", url).replace("{traces}", str(env.traces_dir())) for word in case.command]
        started = time.monotonic()
        done = subprocess.run(_program(command), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    kept = done.returncode == 0
    result = {
        "case": case.name,
        "about": case.about,
        "command": " ".join(case.command),
        "passed": kept,
        "seconds": round(time.monotonic() - started, 1),
        "machine": msgspec.to_builtins(machine_record(datetime.datetime.now(datetime.UTC))),
        "output": _parsed(done.stdout),
    }
    (FOLDER / "results").mkdir(exist_ok=True)
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    (FOLDER / "results" / f"{case.name}.json").write_text(text, encoding="utf-8")
    print(text)
    return kept


def _program(command: list[str]) -> list[str]:
    """The command with this environment's own programs."""
    name, *rest = command
    return [sys.executable, *rest] if name == "python" else [str(Path(sys.executable).parent / name), *rest]


def _parsed(output: str) -> object:
    """The object that a case printed; its machine record is the result's own."""
    try:
        parsed = json.loads(output)
    except json.JSONDecodeError:
        return output
    return {key: value for key, value in parsed.items() if key != "machine"} if isinstance(parsed, dict) else parsed


def main(arguments: list[str]) -> int:
    """Run a suite's cases, or the named ones of it; 1 when one broke its promise, 2 for an unknown name."""
    cases = [case for case in load_cases(FOLDER / "cases") if case.suite == arguments[0]]
    wanted = arguments[1:] or [case.name for case in cases]
    if not cases or not set(wanted) <= {case.name for case in cases}:
        print(f"suite `{arguments[0]}` has the cases {', '.join(case.name for case in cases) or '(none)'}", file=sys.stderr)
        return 2
    broken = [case.name for case in cases if case.name in wanted and not run_case(case)]
    print(f"broken: {', '.join(broken)}" if broken else "all promises kept", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
