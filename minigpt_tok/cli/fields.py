"""Options from the fields of frozen dataclasses: type, default and help are written once, where the field is."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

Function = TypeVar("Function", bound=Callable[..., Any])


def with_fields(panels: Mapping[str, type], *, leave_out: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Give a command an option for each field of dataclasses, in place of its `**given`.

    An option that is not given is `None`, so that a command can tell; the help shows the field's default.

    Args:
        panels: what to call a group of options in the help → the dataclass; each field's `metadata["help"]` is its help.
        leave_out: fields that are set otherwise.
    """

    def extended(function: Function) -> Function:
        own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[
                    get_type_hints(kind)[field.name] | None,
                    typer.Option(
                        help=_sentence(field.metadata["help"]), show_default=str(field.default), rich_help_panel=panel
                    ),
                ],
            )
            for panel, kind in panels.items()
            for field in fields(kind)
            if field.name not in leave_out
        ]
        function.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        return function

    return extended


def values_of(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options that were given, those that are fields of a dataclass."""
    return {field.name: given[field.name] for field in fields(kind) if given.get(field.name) is not None}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
