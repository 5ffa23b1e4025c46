# SPDX-License-Identifier: MIT
"""Programs from PyPI that a test needs, in a virtual environment of the build folder."""
import pathlib
import shutil
import subprocess
import sys
import venv

SKIPPED = 77  # ctest's word for a test that could not be run (SKIP_RETURN_CODE)


def skip(test, why):
    print(f"{test} is skipped: {why}")
    sys.exit(SKIPPED)


def programs_of(test, folder, *packages):
    """The environment's folder of programs, python among them; made first where it is missing. Skips the test where it cannot be made."""
    complete = pathlib.Path(folder).resolve() / "complete"
    programs = complete.parent / "bin"
    if not complete.exists():
        shutil.rmtree(complete.parent, ignore_errors=True)
        try:
            venv.create(complete.parent, with_pip=True)
            subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", "--retries=1", *packages], check=True)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(complete.parent, ignore_errors=True)
            skip(test, f"{', '.join(packages)} could not be installed into a virtual environment: {error}")
        complete.touch()
    return programs
