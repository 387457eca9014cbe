"""Every public function says what it takes: types and a description that names each argument."""

import importlib.util
import inspect
import re

import pytest

import flashspan

MODULES = ["flashspan", "flashspan.masks", "flashspan.explanation", "flashspan.compat.flashmask", "flashspan.compat.flash_attn",
           "flashspan.compat.flex", "flashspan.compat.scfa", "flashspan.compat.transformers"]


def functions():
    for module_name in MODULES:
        if module_name.endswith("transformers") and importlib.util.find_spec("transformers") is None:
            continue
        module = importlib.import_module(module_name)
        names = module.__all__ if module is flashspan else [name for name in vars(module) if not name.startswith("_")]
        for name in names:
            found = getattr(module, name)
            if inspect.isfunction(found) and (module is flashspan or found.__module__ == module_name):
                yield f"{module_name}.{name}", found
    for owner in (flashspan.Mask, flashspan.Score):
        for name, found in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                yield f"{owner.__name__}.{name}", found


# What only the package itself calls.
INTERNAL = {"flashspan.explanation.call_sizes", "Mask.bound", "Score.bound"}

FUNCTIONS = {name: function for name, function in functions() if name not in INTERNAL}

# Arguments that their functions' descriptions leave to another's, which they point at.
ELSEWHERE = {"Mask.explain": "flashspan.explanation.explain", "Mask.picture": "flashspan.picture.draw", "Mask.density": "explain"}


def test_the_list_is_not_empty():
    assert {"flashspan.attention", "flashspan.masks.key_ranges", "flashspan.compat.flex.flex_attention"} <= FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_annotated(name):
    signature = inspect.signature(FUNCTIONS[name])
    missing = [parameter.name for parameter in signature.parameters.values()
               if parameter.name != "self" and parameter.annotation is inspect.Parameter.empty]
    assert missing == [] and signature.return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize("name", FUNCTIONS)
def test_describes_its_arguments(name):
    function = FUNCTIONS[name]
    text = inspect.getdoc(function) or ""
    assert text, "no description"
    if name in ELSEWHERE:
        assert ELSEWHERE[name] in text
        return
    points_elsewhere = re.search(r"[Aa]rguments as of|Others: as in", text)
    missing = [parameter.name for parameter in inspect.signature(function).parameters.values()
               if parameter.name not in ("self", "unused") and not re.search(rf"\b{parameter.name}\b", text)]
    assert missing == [] or points_elsewhere
