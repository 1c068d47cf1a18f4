"""Shortest way from a template's text to what became of it."""

from collections.abc import Mapping
from typing import Any

from haptic_trio.errors import Problem
from haptic_trio.templating.engine import Engine, RenderError
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.values.limits import RenderLimits


def render(source: str, templates: Mapping[str, str] | None = None, /, **context: Any) -> str:
    """Return what *source* renders to."""
    return render_run(source, templates, **context)[0]


def render_run(source: str, templates: Mapping[str, str] | None = None, /, **context: Any) -> tuple[str, RenderRun]:
    """Return what *source* renders to, and the run."""
    engine = Engine({"main": source, **(templates or {})})
    run = engine.start_run()
    return engine.render("main", context, run).text, run


def rejected(source: str, templates: Mapping[str, str] | None = None, /, **context: Any) -> Problem:
    """Return the problem that keeps *source* from being rendered."""
    engine = Engine({"main": source, **(templates or {})}, limits=RenderLimits(seconds=5, output_bytes=10_000_000))
    try:
        text = engine.render("main", context, engine.start_run()).text
    except RenderError as error:
        return error.problems[0]
    raise AssertionError(f"rendered {text!r}")


def resource(name: str = "web", namespace: str = "default", version: str = "1", **fields: Any) -> dict[str, Any]:
    """Return an object of kind Ingress."""
    metadata = {"namespace": namespace, "name": name, "resourceVersion": version}
    return {"kind": "Ingress", "metadata": metadata, **fields}
