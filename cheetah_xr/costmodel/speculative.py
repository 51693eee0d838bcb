"""Speculative decoding: forward passes of the drafter and of the model that verifies."""

from __future__ import annotations

from dataclasses import replace

from ..specs import AnyModel, Model, Options, ParameterCountModel, Precision
from .forward_pass import embedding, layer_work, lm_head, model_work
from .operations import ForwardPass, ForwardPassWork, LayerWork, Num, replicated


def forward_pass_work(model: AnyModel, precision: Precision, options: Options, p: ForwardPass) -> ForwardPassWork:
    """Work of one forward pass on one GPU, the drafts it verifies included.

    In decode `options.draft_tokens` forward passes of one new token per sequence come before it; in prefill one forward
    pass over the prompt fills the drafter's cache.
    """
    work = _with_drafts(model, precision, options, p)
    return work if p.decode else replace(work, n_eager_prefill_layers=work.n_layers)


def _with_drafts(model: AnyModel, precision: Precision, options: Options, p: ForwardPass) -> ForwardPassWork:
    target = model_work(model, precision, options, p)
    drafts = _draft_work(model, precision, options, p)
    if drafts is None:
        return target
    times: Num = options.draft_tokens if p.decode else 1
    layers = tuple(_named(layer, times) for layer in drafts.layers)
    outside = tuple(_named(layer, times) for layer in drafts.outside)
    return ForwardPassWork(
        (*target.layers, *layers),
        (*target.outside, *outside),
        target.n_layers + times * drafts.n_layers,
        target.n_forward_passes + times * drafts.n_forward_passes,
    )


def _named(layer: LayerWork, times: Num) -> LayerWork:
    return replace(layer, label=f"draft {layer.label}", repeats=times, is_draft=True)


def draft_pass(options: Options, p: ForwardPass) -> ForwardPass:
    """Return one forward pass of the drafter: one new token per sequence in decode, the prompt in prefill."""
    if not p.decode:
        return p
    return replace(p, new=1.0, instance_tokens=p.instance_tokens / (1.0 + options.draft_tokens))


def _draft_work(model: AnyModel, precision: Precision, options: Options, p: ForwardPass) -> ForwardPassWork | None:
    """Return the work of one forward pass of the drafter; None where drafts are free."""
    one = draft_pass(options, p)
    if options.drafter == "free":
        return None
    if isinstance(options.drafter, (Model, ParameterCountModel)):
        return model_work(options.drafter, precision, options, one)
    return module_work(model, precision, options, one)


def module_work(model: AnyModel, precision: Precision, options: Options, p: ForwardPass) -> ForwardPassWork | None:
    """Return the work of one forward pass of an MTP module: its layers behind a projection of state and embedding."""
    if isinstance(model, ParameterCountModel) or not model.mtp:
        return None
    projected = replicated("mtp_proj", "dense_mlp", p, 2 * model.hidden, model.hidden, precision, options)
    layers = [layer_work(model.of(group), group, precision, options, p) for group in model.mtp]
    outside = (_shared(embedding(model, precision, p)), _shared(lm_head(model, precision, options, p)))
    n_layers = sum(group.count for group in model.mtp)
    return ForwardPassWork(
        (*layers, LayerWork(1, (projected,), label="projection")), outside if p.decode else (), n_layers
    )


def _shared(layer: LayerWork) -> LayerWork:
    """Work on weights that are the target's: nothing more is resident."""
    return replace(layer, operations=tuple(replace(operation, resident_weights=0.0) for operation in layer.operations))
