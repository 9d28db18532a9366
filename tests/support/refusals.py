"""What a user reads where something is refused."""

import pytest

from simjax.errors import ConfigurationError


def refusals(attempts):
    """The test that each attempt of {name: (attempt, sentence)} is refused in its sentence."""

    @pytest.mark.parametrize("attempt, sentence", attempts.values(), ids=attempts)
    def test(attempt, sentence):
        with pytest.raises(ConfigurationError) as caught:
            attempt()
        assert str(caught.value) == sentence

    return test
