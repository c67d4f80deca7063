"""Run the notebooks, and write each with its outputs beside its script.

A notebook is a script in the percent format of jupytext, ``NAME.py``. This makes ``NAME.ipynb``:
the same cells, with what they printed and drew at full size. Nothing is written where a cell
fails, or writes on standard error.

    pip install '.[notebooks]'
    python notebooks/build.py
    python notebooks/build.py --only house_votes how_sure
    python notebooks/build.py --small
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "build")
#: Of the kernel that ran, what is the same on every machine.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}


def executed(name):
    """Return the notebook of a script with its outputs; it runs in an empty folder."""
    notebook = jupytext.read(FOLDER / f"{name}.py")
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=None,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        ).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # jupytext gives random ones
        cell["metadata"] = nbformat.from_dict({})
    return notebook


def on_standard_error(notebook):
    """Return what the cells wrote on standard error, a str."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.get("name") == "stderr")


def children():
    """Return processor seconds of the kernels that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--small", action="store_true", help="as small as in tests; write nothing")
    options = parser.parse_args()
    os.environ.pop("BMFJAX_QUICK", None)
    if options.small:
        os.environ["BMFJAX_QUICK"] = "1"
    failed = False
    for name in options.only:
        began, used = time.perf_counter(), children()
        notebook = executed(name)
        cost = f"{time.perf_counter() - began:.0f} s, {children() - used:.0f} processor seconds"
        print(f"{name}: {cost}", flush=True)
        if wrote := on_standard_error(notebook):
            failed = True
            print(f"{name} wrote on standard error; it is not stored:\n{wrote}", flush=True)
        elif not options.small:
            nbformat.write(notebook, FOLDER / f"{name}.ipynb")
    sys.exit(failed)


if __name__ == "__main__":
    main()
