"""Fixtures that the tests of several packages share."""

import contextlib
import inspect
import signal

import pytest

_COUNTS = {"listening": None, "compilations": 0, "traces": 0}


def _listen(event, duration, **_):
    if _COUNTS["listening"]:
        _COUNTS["compilations"] += event.endswith("backend_compile_duration")
        _COUNTS["traces"] += event.endswith("jaxpr_trace_duration")


def _begin():
    if _COUNTS["listening"] is None:
        from jax import monitoring  # not where workers alone are started

        monitoring.register_event_duration_secs_listener(_listen)
    _COUNTS.update(listening=True, compilations=0, traces=0)


@pytest.fixture
def compilations():
    """How many programs XLA has compiled since the last question: ``compilations()``."""
    _begin()

    def since_the_last_question():
        count, _COUNTS["compilations"] = _COUNTS["compilations"], 0
        return count

    yield since_the_last_question
    _COUNTS["listening"] = False


@pytest.fixture
def programs_asked():
    """How many programs JAX has traced or compiled since the last question."""
    _begin()

    def since_the_last_question():
        count = _COUNTS["compilations"] + _COUNTS["traces"]
        _COUNTS.update(compilations=0, traces=0)
        return count

    yield since_the_last_question
    _COUNTS["listening"] = False


@pytest.fixture
def quick_page(monkeypatch):
    """Pages without their figures, which take seconds to draw."""
    from bmfjax.report import page

    monkeypatch.setattr(page, "render", lambda _: f"<html><head>{page.PAGE_MARK}</head></html>")


@contextlib.contextmanager
def undrawn():
    """Pages whose figures are made and not drawn, which takes longer than to fit small data."""
    from bmfjax.report import style

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "svg", lambda figure: "<svg></svg>")
        patch.setattr(style, "png", lambda figure, dpi=None: b"")
        yield


@pytest.fixture(scope="module", autouse=True)
def figures_of_this_module(request):
    """Draw figures in the tests of pages alone."""
    with contextlib.nullcontext() if request.path.parent.name == "report" else undrawn():
        yield


@pytest.fixture
def undrawn_figures():
    with undrawn():
        yield


@pytest.fixture
def limit_of_users(monkeypatch):
    """The seconds that fits of users may take where they give no limit."""
    from bmfjax.families import base
    from bmfjax.specs import run

    monkeypatch.setattr(base, "MAX_TIME", run.MAX_TIME)
    return run.MAX_TIME


@pytest.fixture
def signals_of_a_terminal():
    """Signals as in front of a terminal; in the background a shell has Ctrl-C ignored, or nohup."""
    ours = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {signum: signal.signal(signum, handler) for signum, handler in ours.items()}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture
def x64():
    """Double precision for the length of a test."""
    import jax

    enable = getattr(jax, "enable_x64", None)
    if enable is None:  # before JAX 0.8
        from jax.experimental import enable_x64 as enable
    with enable(True):
        yield


#: Rooms and modules of the package whose functions and constants no program is made of.
_NOT_TRACED = (
    "cli", "clock", "comparison", "data.blocks", "data.io", "data.memory", "families.base.LOOKS",
    "families.base.MAX_RANK", "families.base.MAX_TIME", "families.check_programs",
    "families.memory", "families.sampling", "families.stopping", "fitting", "infer.checkpoint",
    "infer.run.ChainRun", "infer.run.time", "infer.timings", "kernels.numerics.compiling.time",
    "optimize.best", "optimize.polish", "posterior", "predictions", "progress", "report", "result",
    "sklearn", "store", "verdict",
)  # fmt: skip
#: Packages whose functions programs are made of.
_TRACED = ("jax", "jaxlib", "numpy", "numpyro", "optax", "scipy")


def _forget():
    from bmfjax.kernels.numerics.programs import forget_programs

    forget_programs()


class _Forgetting(pytest.MonkeyPatch):
    """Forgets programs where what they may have been made of is changed, and is again."""

    _changes = False

    def setattr(self, target, *args, **options):
        if not _is_apart_from_programs(target, *args[:1]):
            self._changes = True
            _forget()
        super().setattr(target, *args, **options)

    def undo(self):
        super().undo()
        if self._changes:
            _forget()


def _is_apart_from_programs(target, attribute=""):
    if inspect.ismodule(target):
        name = target.__name__
        target = name if name == "bmfjax" else f"{name}.{attribute}"
    elif not isinstance(target, str):
        names = (getattr(target, name, None) for name in ("__module__", "__qualname__"))
        target = ".".join(filter(None, names))
    package, _, rest = target.partition(".")
    if package == "bmfjax":  # which has names alone
        return not rest or f"{rest}.".startswith(tuple(f"{name}." for name in _NOT_TRACED))
    return package not in ("", "tests", *_TRACED)


@pytest.fixture
def monkeypatch():
    """Return that of pytest, which also forgets programs; see `_Forgetting`."""
    with _Forgetting.context() as patch:
        yield patch
