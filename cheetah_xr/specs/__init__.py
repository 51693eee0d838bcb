"""Specs: frozen records of models, accelerators, precisions, efficiencies and options, and where to find them."""

from ..errors import SpecError
from .attention_kinds import RECURRENT
from .catalogue import (
    catalogue_root,
    check_length,
    list_efficiencies,
    list_gpus,
    list_models,
    list_posteriors,
    list_precisions,
    list_sweeps,
    posterior_path,
    sweep_path,
)
from .efficiency import COLLECTIVES, KERNELS, LAUNCHED, Efficiency
from .gpu import COMPUTE_TYPES, Gpu
from .layers import OWN_WIDTHS, LayerGroup
from .loading import load_efficiency, load_gpu, load_model, load_precision
from .model import GROUP_NUMBERS, AnyModel, Model, ParameterCountModel
from .options import Options
from .parallelism import DEGREES, ParallelDegrees
from .precision import GEMM_CLASSES, WEIGHT_CLASSES, Precision
from .record import Frozen, Record, allowed_keys, explain, read_yaml, to_record

__all__ = [
    "COLLECTIVES",
    "COMPUTE_TYPES",
    "DEGREES",
    "GEMM_CLASSES",
    "GROUP_NUMBERS",
    "KERNELS",
    "LAUNCHED",
    "OWN_WIDTHS",
    "RECURRENT",
    "WEIGHT_CLASSES",
    "AnyModel",
    "Efficiency",
    "Frozen",
    "Gpu",
    "LayerGroup",
    "Model",
    "Options",
    "ParallelDegrees",
    "ParameterCountModel",
    "Precision",
    "Record",
    "SpecError",
    "allowed_keys",
    "catalogue_root",
    "check_length",
    "explain",
    "list_efficiencies",
    "list_gpus",
    "list_models",
    "list_posteriors",
    "list_precisions",
    "list_sweeps",
    "load_efficiency",
    "load_gpu",
    "load_model",
    "load_precision",
    "posterior_path",
    "read_yaml",
    "sweep_path",
    "to_record",
]
