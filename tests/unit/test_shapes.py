"""seq2seq.shapes: what signatures say about shapes is checked while the tests of a layer run."""

import jaxtyping
import pytest
import torch

from seq2seq.nn.attention import merge_heads


def test_a_tensor_of_another_shape_is_refused(request):
    if not request.config.getoption("--jaxtyping-packages"):
        pytest.skip("these tests were started without the checks of shapes; make test has them")
    assert merge_heads(torch.ones(2, 2, 3, 4)).shape == (2, 3, 8)
    with pytest.raises(jaxtyping.TypeCheckError, match="merge_heads"):
        merge_heads(torch.ones(2, 3, 4))
