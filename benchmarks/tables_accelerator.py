"""The pages on what was measured on an accelerator."""

from __future__ import annotations

from benchmarks.tables_form import Records, number, page, table

#: The phases that time sweeps; the CPU beside the device has some of their cases.
SWEEPS = ("boolean", "votes", "models", "blocks", "largest")


@page(
    "accelerator", "What do the samplers do on an accelerator?", "accelerator_[!c]*",
    "accelerator_cpu*",
)  # fmt: skip
def accelerator(records: Records):
    yield (
        "One command, on one device. Boolean sweeps are of one chain on random words; the votes "
        "have four temperatures; the other models have four chains. Medians of three rounds. `at "
        "once` is how many blocks of rows and of columns there are; a device takes as many of "
        "them side by side as its budget of memory holds. A case without figures has its message."
    )
    for name, record in records.items():
        found = record["figures"]
        yield f"## {name}"
        yield _device(record["device"], found.get("device", {}))
        yield table(
            ["case", "ms a sweep", "quickest", "CPU beside it, ms", "compiling, s",
             "blocks of rows, of columns", "temporaries, MB"],
            [
                _sweep(case, one, found.get("on cpu", {}).get(case))
                for phase in SWEEPS for case, one in found.get(phase, {}).items()
            ],
        )  # fmt: skip
        yield from _rest(found)
        yield "Phases, in seconds."
        yield table(
            ["phase", "seconds", "limit", "stopped"],
            [
                [phase, number(end.get("seconds")), number(end.get("limit_seconds")),
                 end.get("stopped", "")]
                for phase, end in found["phases"].items()
            ],
        )  # fmt: skip


def _device(device: dict, found: dict) -> str:
    """Tell what the device is and does."""
    memory, budget = (found.get(n) for n in ("memory_bytes", "budget_bytes"))
    parts = [f"{device['kind']}"]
    parts += [f"{memory / 1e9:.1f} GB for programs"] if isinstance(memory, int) else []
    parts += [f"{budget / 1e9:.1f} GB of them for blocks at once"] if budget else []
    for name, what in (
        ("copy_gb_per_s", "GB/s copied"),
        ("full_float32_tflops", "TFLOP/s of full float32 products"),
        ("default_float32_tflops", "TFLOP/s of products as JAX makes them by default"),
    ):
        if isinstance(found.get(name), float):
            parts.append(f"{number(found[name])} {what}")
    return ", ".join(parts) + "."


def _sweep(case: str, one: dict, of_cpu: dict | None) -> list:
    if "error" in one:
        return [case, one["error"], *[""] * 5]
    blocks = " and ".join(number(n) for n in one.get("blocks", ()))
    temporary = one.get("temporary_bytes")
    return [
        case, number(one["sweep_ms"], 2), number(one["sweep_ms_quickest"], 2),
        number((of_cpu or {}).get("sweep_ms"), 2), number(one["compile_seconds"], 1), blocks,
        number(None if temporary is None else temporary / 1e6, 1),
    ]  # fmt: skip


def _rest(found: dict):
    """Write what is no sweep: steps of IASG, fits, tests."""
    if steps := found.get("iasg"):
        yield "Microseconds of a step of IASG, 512 x 512 at rank 30."
        kinds = ("products", "published", "with curvature")
        yield table(
            ["batch", *kinds],
            [
                [batch.removeprefix("batch "), *(one.get(kind, one.get("error")) for kind in kinds)]
                for batch, one in steps.items()
            ],
        )
    for phase, what in (("starts", "Starts"), ("first answer", "A first answer")):
        for case, one in found.get(phase, {}).items():
            told = ", ".join(f"{n.replace('_', ' ')} {_plain(v)}" for n, v in one.items())
            yield f"{what}, {case}: {told}."
    for one in found.get("tests", {}).values():
        counts = ", ".join(f"{number(n)} {kind}" for kind, n in one.items() if _is_count(n))
        bad = "; ".join(f"`{test}`" for test in one.get("not passed", ())) or "none"
        told = counts or one.get("error") or "none ran"
        yield f"Tests of the kernels there: {told}. Not passed: {bad}."


def _is_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _plain(value) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{n} {_plain(v)}" for n, v in value.items())
    if isinstance(value, list):
        return " + ".join(map(_plain, value))
    return value if isinstance(value, str) else number(value)
