"""Configs of every family, changed in a field or two, and what a config says of the architecture."""

import copy

import cheetah_xr as cx
from tests.helpers.configs import CONFIGS
from tests.helpers.configs_beyond import BEYOND

ALL = CONFIGS | BEYOND
NOT_ARCHITECTURE = {"name", "sources", "notes", "status", "default_precision"}


def architecture(model, without=frozenset()):
    return cx.load_model(model).model_dump(exclude=NOT_ARCHITECTURE | without)


def changed(name, **fields):
    """A config with other fields, of its text model where it has one."""
    config = copy.deepcopy(ALL[name])
    text = config.get("text_config", config)
    text.update(fields)
    return config


def without(name, *fields):
    config = copy.deepcopy(ALL[name])
    text = config.get("text_config", config)
    for field in fields:
        del text[field]
    return config
