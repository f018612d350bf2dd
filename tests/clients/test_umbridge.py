"""``umbridge.HTTPModel``."""

import umbridge


def test_models(url, native):
    assert "log1pexp" in umbridge.supported_models(url)
