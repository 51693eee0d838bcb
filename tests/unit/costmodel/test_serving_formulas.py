"""Formulas of continuous batching against hand-computed numbers."""

import numpy as np
import pytest

from cheetah_xr.costmodel.formulas import serving as terms


def test_running_is_what_the_cache_holds_and_at_least_one_per_rank():
    assert terms.running(64, 100, 1) == 64
    assert terms.running(64, 40, 1) == 40
    assert terms.running(64, np.inf, 1) == 64
    assert terms.running(64, 0, 8) == 8
    assert terms.running(4, 0, 8) == 4


def test_interfering_prompts_leave_out_two_of_every_rank():
    # 66 requests need 66 prompts in 32 steps; 64 of them are neither the request's own nor its successor's.
    assert terms.interfering_prompts(66, 1, 32) == 2
    assert terms.interfering_prompts(80, 8, 32) == 2
    assert terms.interfering_prompts(2, 1, 32) == terms.interfering_prompts(1, 1, 32) == 0


def test_synchronized_batches_wait_for_half_of_the_prompts_after_the_first():
    # 20 requests, 4 admitted at once: of the other 16 half come after a request's own, in 64 steps.
    assert terms.interfering_prompts_synchronized(20, 4, 64) == 8 / 64
    assert terms.interfering_prompts_synchronized(4, 4, 64) == terms.interfering_prompts_synchronized(1, 4, 64) == 0


def test_prompts_admitted_at_once_hold_16384_tokens_on_average():
    assert terms.prompts_admitted_at_once(1024, 1) == 16
    assert terms.prompts_admitted_at_once(10_240, 2) == 2 * 1.6
    assert terms.prompts_admitted_at_once(32_768, 2) == 2


def test_prompts_of_a_pass_are_those_that_end_in_a_step():
    assert terms.prefill_batch(64, 1, 1024) == 1
    assert terms.prefill_batch(640, 1, 128) == 5
    assert terms.prefill_batch(640, 8, 128) == 8
    assert terms.prefill_batch(2560, 8, 128) == 8 * round(2.5)


def test_prompts_that_fill_a_budget():
    assert terms.prefill_batch_within_budget(8192, 1024, 1) == 8
    assert terms.prefill_batch_within_budget(8192, 5000, 4) == 4 * 2
    assert terms.prefill_batch_within_budget(8192, 100_000, 4) == 4


def test_separate_prefill_adds_its_part_of_a_prompt():
    # 0.25 prompts a step, two of them in forward passes of 80 ms.
    assert terms.tpot_separate(0.010, 0.080, 0.25, 2) == pytest.approx(0.010 + 0.25 * 0.040)


def test_mixed_batches_replace_a_fraction_of_the_steps():
    # A quarter of the steps takes 90 ms in place of 10 ms.
    assert terms.tpot_mixed(0.010, 0.090, 0.5, 2) == pytest.approx(0.75 * 0.010 + 0.25 * 0.090)
    assert terms.tpot_mixed(0.010, 0.090, 7, 2) == 0.090, "there are no more steps than all"
    assert terms.tpot_mixed(0.010, 0.009, 1, 2) == 0.010, "a mixed batch is never faster"


def test_tokens_of_a_mixed_pass():
    # Two prompts of 100 tokens and 50 requests: 250 tokens instead of 200.
    assert terms.mixed_batch_token_ratio(50, 2, 100) == 1.25


def test_engine_seconds_of_a_request():
    # A fourth of a pass of 80 ms, and 100 steps of 10 ms shared by 20.
    assert terms.seconds_per_request(0.080, 4, 0.010, 100, 20) == pytest.approx(0.020 + 0.050)
    assert terms.seconds_per_request(0.080, 4, 0.010, -3, 20) == 0.020


def test_steps_that_mixed_passes_do():
    # Each prompt comes in 3 forward passes, two prompts together, with 8 of 10: every other request gets 3*8/2 tokens.
    assert terms.decode_steps_in_mixed_batches(3, 10, 2) == 12
    assert terms.decode_steps_in_mixed_batches(3, 2, 2) == 0


@pytest.mark.parametrize("capacity", [1e9, np.inf])
def test_in_a_pool_all_decode_but_those_in_prefill(capacity):
    # A step takes 10 ms whatever n: n requests end in 100 steps = 1 s, so n + 0.5 * n = 30.
    decoding = terms.decode_concurrency(30.0, 0.5, capacity, 100, lambda n: 0.010 + 0 * n)
    assert decoding == pytest.approx(20, rel=1e-12)


def test_in_a_pool_the_slower_prefill_sets_the_rate():
    # Prefill gives 5 requests a second: n = 5 * 100 * (8 ms + n * 0.2 ms) = 4 + n/10, so n = 40/9.
    decoding = terms.decode_concurrency(64.0, 0.5, 5.0, 100, lambda n: 0.008 + 0.0002 * n)
    assert decoding == pytest.approx(40 / 9, rel=1e-12)


def test_pools_broadcast():
    first = np.array([[0.5], [1.0]])
    decoding = terms.decode_concurrency(np.array([30.0, 60.0]), first, np.inf, 100, lambda n: 0.010 + 0 * n)
    np.testing.assert_allclose(decoding, [[20, 40], [15, 30]], rtol=1e-12)


def test_transfer_of_a_cache():
    assert terms.kv_transfer_time(2e9, 50e9) == 0.04


def test_waiting_follows_from_littles_law():
    # 2 requests a second, 10 in flight: 5 s each. 6 decode and half a second of prefill is one more; 3 wait 1.5 s.
    assert terms.queue_time(10, 6, 0.5, 2) == 1.5
    assert terms.queue_time(7, 6, 0.5, 2) == 0
