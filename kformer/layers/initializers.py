"""Initial weights. The paper does not specify them."""

import keras

STANDARD_DEVIATION = 0.02


def small_normal() -> keras.initializers.Initializer:
    """A normal distribution with standard deviation 0.02 for every matrix, as in Hugging Face's BERT and Marian.

    If the layer norm follows the sum, sublayers with small initial weights leave most of the sum to the residual path.
    On the shipped corpus, models learned faster with this initializer than with Glorot's uniform one: see
    docs/decisions.md.
    """
    return keras.initializers.RandomNormal(stddev=STANDARD_DEVIATION)


def unit_variance() -> keras.initializers.Initializer:
    """A normal distribution with variance 1 / K for K inputs: at first, outputs have the variance of the inputs.

    It is for a projection that all values pass through, outside of any residual connection. The initializer is that of
    LeCun et al. (1998), section 4.6.
    """
    return keras.initializers.LecunNormal()
