import inspect

import keras
import numpy as np
import pytest
from keras import ops

from kformer.config import TrainingConfig
from kformer.schedules import WarmupConstant, WarmupCosine, WarmupInverseSqrt, WarmupLinear
from kformer.training.learning_rate import build_schedule
from kformer.training.optimizers import accumulation_steps, build_optimizer, update_count


def equation_3(n, d_model, warmup_steps):
    return d_model**-0.5 * min(n**-0.5, n * warmup_steps**-1.5)


def test_values_derived_by_hand():
    schedule = WarmupInverseSqrt(d_model=512, warmup_steps=4000)
    peak = (512 * 4000) ** -0.5  # 6.9877e-4
    assert float(schedule(0)) == pytest.approx(peak / 4000, rel=1e-6)
    assert float(schedule(1999)) == pytest.approx(peak / 2, rel=1e-6)
    assert float(schedule(3999)) == pytest.approx(peak, rel=1e-6)
    assert float(schedule(15999)) == pytest.approx(peak / 2, rel=1e-6)


def test_matches_equation_3_at_every_step():
    schedule = WarmupInverseSqrt(d_model=17, warmup_steps=7, scale=1.5)
    rates = [float(schedule(step)) for step in range(29)]
    np.testing.assert_allclose(rates, [1.5 * equation_3(n, 17, 7) for n in range(1, 30)], rtol=1e-6)


# The peak is 0.6, at update 3; the last update is the seventh.
PEAK = {"learning_rate": 0.6, "warmup_steps": 3, "max_steps": 7}
RATES = {
    "constant": [0.2, 0.4, 0.6, 0.6, 0.6, 0.6, 0.6],
    "inverse_sqrt": [0.2, 0.4, 0.6, *(0.6 * (3 / n) ** 0.5 for n in range(4, 8))],
    "linear": [0.2, 0.4, 0.6, 0.45, 0.3, 0.15, 0.0],
    # Half of a circle in four steps: the cosines are 1, 2**-0.5, 0, -(2**-0.5) and -1.
    "cosine": [0.2, 0.4, 0.6, 0.3 + 0.3 * 2**-0.5, 0.3, 0.3 - 0.3 * 2**-0.5, 0.0],
}


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_rates_of_a_schedule_with_a_peak(name, accumulation):
    training = TrainingConfig(schedule=name, gradient_accumulation_steps=accumulation, **PEAK)
    schedule = build_schedule(64, training)
    rates = [float(schedule(step)) for step in range(7 * accumulation)]
    np.testing.assert_allclose(rates, np.repeat(RATES[name], accumulation), rtol=1e-5, atol=1e-7)
    assert keras.backend.standardize_dtype(schedule(5).dtype) == "float32"


@pytest.mark.parametrize(
    ("name", "rates"),
    [("linear", [0.5, 0.4, 0.3, 0.2]), ("cosine", [0.4 + 0.2 * 2**-0.5, 0.4, 0.4 - 0.2 * 2**-0.5, 0.2])],
)
def test_a_rate_may_end_above_zero_and_stays_there(name, rates):
    schedule = build_schedule(64, TrainingConfig(schedule=name, final_learning_rate=0.2, **PEAK))
    np.testing.assert_allclose([float(schedule(step)) for step in range(3, 9)], [*rates, 0.2, 0.2], rtol=1e-5)


@pytest.mark.parametrize("kind", [WarmupLinear, WarmupCosine])
@pytest.mark.parametrize("updates", [2, 3])
def test_a_run_that_ends_in_its_warmup_only_rises(kind, updates):
    schedule = kind(0.6, updates, warmup_steps=3)
    np.testing.assert_allclose([float(schedule(step)) for step in range(3)], [0.2, 0.4, 0.6], rtol=1e-5)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_rate_ends_where_the_budget_of_epochs_does(name):
    training = TrainingConfig(schedule=name, **{**PEAK, "max_steps": None}, max_epochs=2)
    assert float(build_schedule(64, training, updates=5)(3)) == pytest.approx(0.3, rel=1e-5)  # half of two updates
    with pytest.raises(ValueError, match=f"{name} ends at the last update. Received: a budget in epochs, and no"):
        build_schedule(64, training)


@pytest.mark.parametrize("step", [5, np.int64(5), np.float32(5.0)])
def test_is_float32_whatever_the_step_is(step):
    rate = WarmupInverseSqrt(d_model=16, warmup_steps=3)(ops.convert_to_tensor(step))
    assert keras.backend.standardize_dtype(rate.dtype) == "float32"
    assert float(rate) == pytest.approx(equation_3(6, 16, 3), rel=1e-6)


@pytest.mark.parametrize("accumulation", [1, 2, 3])
def test_optimizer_applies_the_rate_of_its_update(accumulation):
    # Plain gradient descent on a gradient of 1 moves the weight by the rate itself.
    schedule = WarmupInverseSqrt(d_model=4, warmup_steps=3, gradient_accumulation_steps=accumulation)
    keras_steps = accumulation if accumulation > 1 else None
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=keras_steps)
    weight = keras.Variable(0.0)
    optimizer.build([weight])
    values = [0.0]
    for micro_step in range(5 * accumulation):
        optimizer.apply([ops.ones(())])
        assert update_count(optimizer) == (micro_step + 1) // accumulation
        values.append(float(weight.value))
    moves = -np.diff(values[::accumulation])
    np.testing.assert_allclose(moves, [equation_3(n, 4, 3) for n in range(1, 6)], rtol=1e-5)


def test_build_optimizer_reads_the_configuration():
    config = TrainingConfig(warmup_steps=11, learning_rate_scale=2.0, gradient_accumulation_steps=3)
    optimizer = build_optimizer(64, config)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert optimizer.gradient_accumulation_steps == accumulation_steps(optimizer) == 3
    assert float(optimizer.learning_rate) == pytest.approx(2 * equation_3(1, 64, 11), rel=1e-6)
    assert build_optimizer(64, TrainingConfig()).gradient_accumulation_steps is None


def test_counts_see_through_the_loss_scale():
    optimizer = keras.optimizers.LossScaleOptimizer(build_optimizer(64, TrainingConfig(gradient_accumulation_steps=2)))
    optimizer.build([keras.Variable(0.0)])
    for _ in range(7):
        optimizer.inner_optimizer.apply([ops.ones(())])
    assert accumulation_steps(optimizer) == 2
    assert update_count(optimizer) == 3


@pytest.mark.parametrize("name", ["d_model", "warmup_steps", "scale", "gradient_accumulation_steps"])
def test_refuses_what_is_not_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be greater than 0. Received: {name}=0"):
        WarmupInverseSqrt(**{"d_model": 8, name: 0})


@pytest.mark.parametrize("kind", [WarmupConstant, WarmupLinear, WarmupCosine])
@pytest.mark.parametrize("name", ["peak", "warmup_steps", "gradient_accumulation_steps", "updates"])
def test_schedules_with_a_peak_refuse_what_is_not_positive(kind, name):
    arguments = {"peak": 0.1} if kind is WarmupConstant else {"peak": 0.1, "updates": 7}
    if name in inspect.signature(kind).parameters:
        with pytest.raises(ValueError, match=f"{name} must be greater than 0. Received: {name}=0"):
            kind(**{**arguments, name: 0})


@pytest.mark.parametrize("kind", [WarmupLinear, WarmupCosine])
def test_a_rate_below_zero_at_the_end_is_refused(kind):
    with pytest.raises(ValueError, match="final must be at least 0. Received: final=-0.1"):
        kind(0.1, 7, final=-0.1)
