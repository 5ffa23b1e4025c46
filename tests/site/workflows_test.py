# SPDX-License-Identifier: MIT
"""The files for a host of repositories: valid by their schemas, and what they run is here.

The schemas come from PyPI (check-jsonschema) into a virtual environment in the build folder. Exit status 77 (skipped) where that
cannot be had.
"""
import json
import pathlib
import re
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "tests" / "support"))
from environment import programs_of  # noqa: E402  (found there)

VALIDATOR = "check-jsonschema~=0.39"
SCHEMAS = {
    "github-workflows": sorted((CHECKOUT / ".github" / "workflows").glob("*.yml")),
    "github-issue-forms": sorted(path for path in (CHECKOUT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"),
    "github-issue-config": [CHECKOUT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
    "citation-file-format": [CHECKOUT / "CITATION.cff"],
}


def faults_of(workflow):
    """What a workflow runs that is not in the checkout: scripts, their flags, presets."""
    text = workflow.read_text()
    for script in set(re.findall(r"(?:tests|bench|cmake|docs|examples)/[\w/]+\.(?:sh|py)", text)):
        if not (CHECKOUT / script).is_file():
            yield f"runs {script}, which is not in the tree"
    for script, flags in re.findall(r"((?:tests|bench)/run\.sh)((?: +--[\w-]+)*)", text):
        for flag in flags.split():
            if flag not in (CHECKOUT / script).read_text():
                yield f"gives {script} the flag {flag}, which it does not know"
    presets = {preset["name"] for kind in json.loads((CHECKOUT / "CMakePresets.json").read_text()).values() if isinstance(kind, list)
               for preset in kind}
    for preset in set(re.findall(r"--preset[ =]([\w-]+)", text)) - presets:
        yield f"names the preset {preset}, which CMakePresets.json has not"


def main():
    validator = programs_of("workflows", sys.argv[1], VALIDATOR) / "check-jsonschema"
    failed = False
    for schema, files in SCHEMAS.items():
        if not files:
            sys.exit(f"workflows: no file for the schema {schema}")
        done = subprocess.run([validator, "--builtin-schema", f"vendor.{schema}", *files], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode != 0:
            print(done.stdout)
            failed = True
    for workflow in SCHEMAS["github-workflows"]:
        for fault in faults_of(workflow):
            print(f"{workflow.relative_to(CHECKOUT)} {fault}")
            failed = True
    sys.exit(1 if failed else 0)


main()
