"""The YAML file of `cairn run --config`: read, and every key of it known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cairn.model.errors import ConfigProblem

TIER_KEYS = ("replication_factor", "can_vote", "bucket_count", "replication_mode", "hash_version")
_FURTHER = ("cluster.default_bucket_count", "cluster.tier")
#: Keys whose value is no single word or number.
_SHAPES: dict[str, type] = {"instance.peer": list, "instance.failure_domain": dict}


def read_file(path: str | None, known: Iterable[str]) -> dict[str, Any]:
    """The file as a tree; `known` are its dotted keys. A misspelt key is refused, not ignored."""
    if not path:
        return {}
    import yaml

    try:
        found = yaml.safe_load(Path(path).read_text())
    except OSError as problem:
        raise ConfigProblem(f"--config {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigProblem(f"--config {path}: this is no text in UTF-8") from None
    except yaml.MarkedYAMLError as problem:
        line = "" if problem.problem_mark is None else f"line {problem.problem_mark.line + 1}: "
        raise ConfigProblem(f"--config {path}: {line}{problem.problem}") from None
    except yaml.YAMLError as problem:
        raise ConfigProblem(f"--config {path}: {' '.join(str(problem).split())}") from None
    if not isinstance(found, dict):
        raise ConfigProblem(f"--config {path}: a mapping is expected at the top")
    try:
        _check(found, (), frozenset({*known, *_FURTHER}))
    except ConfigProblem as problem:
        raise ConfigProblem(f"--config {path}: {problem}") from None
    return found


def dig(tree: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree


def whole(value: Any, source: str, low: int, high: int | None = None) -> int:
    """A number out of a flag, a variable or the file, where it may be anything."""
    text = str(value).strip()
    number = int(text) if text.isascii() and text.isdigit() else -1
    if number < low or (high is not None and number > high):
        what = f"a number from {low} to {high}" if high is not None else f"a number from {low} on"
        raise ConfigProblem(f"{source} {value!r}: {what}")
    return number


def _check(tree: Mapping[Any, Any], above: tuple[str, ...], known: frozenset[str]) -> None:
    depth = len(above)
    here = {
        words[depth]
        for words in (key.split(".") for key in known)
        if len(words) > depth and tuple(words[:depth]) == above
    }
    for key, value in tree.items():
        if key not in here:
            raise ConfigProblem(_unknown(".".join((*above, str(key))), str(key), here))
        dotted = ".".join((*above, key))
        if value is None:
            continue
        if dotted == "cluster.tier":
            _check_tiers(value)
        elif dotted not in known:
            _check(_mapping(value, dotted), (*above, key), known)
        elif isinstance(value, dict | list) and not isinstance(value, _SHAPES.get(dotted, str)):
            raise ConfigProblem(f"{dotted}: a single value is expected, not {value}")


def _check_tiers(value: Any) -> None:
    for name, options in _mapping(value, "cluster.tier").items():
        for key in _mapping(options or {}, f"cluster.tier.{name}"):
            if key not in TIER_KEYS:
                raise ConfigProblem(_unknown(f"cluster.tier.{name}.{key}", str(key), TIER_KEYS))


def _mapping(value: Any, dotted: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise ConfigProblem(f"{dotted}: a mapping is expected, not {value}")
    return value


def _unknown(dotted: str, key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, sorted(known), n=1, cutoff=0.5)
    meant = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
    return f"unknown key {dotted}: {meant}"
