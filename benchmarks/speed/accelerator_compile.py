"""Do the samplers compile for a GPU and a TPU?

One step of a chain of every model is compiled ahead of time for a TPU v5e and for an H200, neither
of which has to be there, with the shapes of the data alone. Nothing is run.

Needs what JAX needs for either device (`pip install "jax[tpu]"`, `"jax[cuda12]"`); a target whose
compiler is not installed is named and left out.
"""

import os
import time

# Traced on the CPU; the compilers of the targets look for no device.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TPU_SKIP_MDS_QUERY"] = "1"
# To choose between variants of a program by their time a device would be needed.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.device import script, some
from benchmarks.form import number, page_of_each, table
from benchmarks.speed.accelerator_phases import _ratings
from bmfjax.families import ask
from bmfjax.kernels.boolean.density import BooleanDensity
from bmfjax.kernels.boolean.gibbs import ormachine
from bmfjax.kernels.boolean.words import PackedData, PackedLines, block_shape

#: What the compiler asks of an H200 (NVIDIA: H200 data sheet; CUDA C++ programming guide, table of
#: technical specifications for compute capability 9.0).
H200 = {
    "threads_per_block_limit": 1024, "threads_per_warp": 32, "shared_memory_per_block": 49_152,
    "shared_memory_per_core": 233_472, "threads_per_core_limit": 2048, "core_count": 132,
    "fpus_per_core": 128, "block_dim_limit_x": 2**31 - 1, "block_dim_limit_y": 65_535,
    "block_dim_limit_z": 65_535, "memory_bandwidth": 4_800_000_000_000,
    "l2_cache_size": 52_428_800, "clock_rate_ghz": 1.98, "device_memory_size": 150_754_820_096,
    "shared_memory_per_block_optin": 232_448, "registers_per_core_limit": 65_536,
    "registers_per_block_limit": 65_536,
}  # fmt: skip
#: Bytes of memory, as published.
TARGETS = {"TPU v5e": {"memory": 16 * 2**30}, "H200": {"memory": 141e9}}


def topology(target: str):
    """Return the devices of a target, or raise RuntimeError where its compiler is not installed."""
    try:
        if target.startswith("TPU"):
            return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
        lines = "".join(f"  {name}: {value}\n" for name, value in H200.items())
        config = (
            f"gpu_device_info {{\n{lines}  cuda_compute_capability {{ major: 9 }}\n}}\n"
            'platform_name: "CUDA"\ndnn_version_info { major: 9 minor: 10 }\n'
            "runtime_version { major: 12 minor: 9 patch: 0 }\n"
            'device_description_str: "NVIDIA H200"\n'
        )
        return topologies.get_topology_desc(platform="cuda", target_config=config, topology="1x1x1")
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from None


# ---- the steps ------------------------------------------------------------------------------


def boolean(rows: int, columns: int, rank: int):
    """Return the Boolean sampler and the shapes of packed words, which need not be there."""

    def lines(number, entries):
        words = -(-entries // 32)
        shape = (*block_shape(number, words), words)
        return PackedLines(jax.ShapeDtypeStruct(shape, jnp.uint32), None)

    count = jax.ShapeDtypeStruct((), jnp.float32)
    data = PackedData(lines(rows, columns), lines(columns, rows), count, count)
    return ormachine(BooleanDensity((rows, columns), rank)), data


def of_fit(source, rank: int, **options):
    """Return the sampler of a fit, and its data."""
    chains = ask(source, rank, num_warmup=0, num_samples=8, **options).chains()
    return chains.algorithm, chains.data


def binary(rows: int, columns: int) -> np.ndarray:
    return (np.random.default_rng(0).random((rows, columns)) < 0.3).astype(np.float32)


STEPS = {
    "Boolean, 100,000 x 1,000, rank 20": lambda: boolean(100_000, 1_000, 20),
    "Boolean, 1,300,000 x 20,000, rank 10": lambda: boolean(1_300_000, 20_000, 10),
    "Boolean, 512 x 512, rank 30, moves": lambda: of_fit(binary(512, 512), 30, model="ormachine"),
    "relaxed, 512 x 512, rank 30": lambda: of_fit(binary(512, 512), 30, model="relaxed"),
    "relaxed, 8,192 x 2,048, rank 30": lambda: of_fit(binary(8192, 2048), 30, model="relaxed"),
    "relaxed, 512 x 512, rank 30, IASG": lambda: of_fit(
        binary(512, 512), 30, model="relaxed", sampler="iasg"
    ),
    "nmf, 512 x 512, rank 10": lambda: of_fit(binary(512, 512) + 0.1, 10, model="nmf"),
    "ratings of MovieLens 100K, rank 32": lambda: of_fit(
        _ratings(943, 1682, 100_000), 32, model="pmf"
    ),
    "logistic, 512 x 512, rank 10, gibbs": lambda: of_fit(
        binary(512, 512), 10, model="logistic", sampler="gibbs"
    ),
}


def one_step(make) -> tuple:
    """Return the step of a sampler, and the shapes of what it takes."""
    algorithm, data = make()
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(lambda k, d: algorithm.init(k, None, d), key, data)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), data)

    def step(key, state, data):
        state, info = algorithm.step(key, state, data)
        return state, algorithm.observe(state, info)

    return step, (key, state, shapes)


def compiled(step, shapes, devices) -> dict:
    """Compile a step for a device, and tell what the program asks for."""
    mesh = topologies.make_mesh(devices, (len(devices.devices),), ("devices",))
    whole = NamedSharding(mesh, PartitionSpec())
    began = time.perf_counter()
    try:
        # The state is replaced by the next one, as in a run.
        lowered = jax.jit(step, in_shardings=whole, out_shardings=whole, donate_argnums=1).lower(
            *shapes
        )
        memory = lowered.compile().memory_analysis()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"}
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "scratch_bytes": memory.temp_size_in_bytes,
    }


ANSWER = """
Yes, all nine steps that were tried, for an H200 and a TPU v5e, on a machine that has neither.

| one step of one chain | target | arguments, MB | scratch, MB |
| --- | --- | --- | --- |
| Boolean, 1,300,000 x 20,000, rank 10 | H200 | 6,502 | 78 |
| Boolean, 1,300,000 x 20,000, rank 10 | TPU v5e | 6,549 | 5,586 |
| Boolean, 100,000 x 1,000, rank 20 | H200 | 26 | 12 |
| relaxed, 8,192 x 2,048, rank 30 | H200 | 135 | 67 |

On the TPU the largest matrix fits into 16 GB with little to spare, since the compiler asks for
scratch of almost its size again, and takes 286 s on one core that other work shared.
"""


@page_of_each(
    __doc__,
    notes=[("85cf174", "one core, with other work beside it")],
    intro=(
        "Compiled ahead of time, on a machine without either; nothing was run. One step of one "
        "chain; bytes are those that the compiled program asks for."
    ),
)
def tables(found: dict):
    yield from (
        f"{target} is left out: {peaks['left_out']}"
        for target, peaks in found["targets"].items() if "left_out" in peaks
    )  # fmt: skip
    yield table(
        ["step", "target", "compiles", "seconds of compiling", "arguments, MB", "scratch, MB",
         "fits"],
        [
            _compiled_row(step, target, one)
            for step, case in found["steps"].items()
            for target, one in case["compiled"].items()
        ],
    )  # fmt: skip


def _compiled_row(step: str, target: str, one: dict) -> list:
    """Tell of one step on one target: whether it compiles, and what it needs."""
    if "error" in one:
        return [step, target, one["error"], *[""] * 4]
    return [
        step, target, "yes", number(one["seconds"], 1), number(one["argument_bytes"] / 1e6, 1),
        number(one["scratch_bytes"] / 1e6, 1), "yes" if one["fits"] else "no",
    ]  # fmt: skip


@script(__doc__, targets=some(TARGETS), steps=some(STEPS))
def main(options):
    figures = {"targets": {}, "steps": {}}
    there = {}
    for target in options.targets:
        figures["targets"][target] = dict(TARGETS[target])
        try:
            there[target] = topology(target)
        except RuntimeError as error:
            figures["targets"][target]["left_out"] = str(error)
            print(target, error, flush=True)
    for name in options.steps:
        step, shapes = one_step(STEPS[name])
        case = {"compiled": {}}
        for target, devices in there.items():
            found = compiled(step, shapes, devices)
            if "error" not in found:
                needed = sum(found[f"{n}_bytes"] for n in ("argument", "output", "scratch"))
                found["fits"] = bool(needed < TARGETS[target]["memory"])
            case["compiled"][target] = found
            print(name, target, found, flush=True)
        figures["steps"][name] = case
    return figures
