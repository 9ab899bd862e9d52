"""seq2seq.nn.masks: boolean, True = may attend."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from seq2seq.nn.masks import causal_mask, document_mask, padding_mask, prefix_mask


def test_the_padding_mask_is_the_validity_of_the_keys_for_every_head_and_query():
    valid = torch.tensor([[True, True, True, True, True], [True, True, True, False, False]])
    mask = padding_mask(valid)
    assert mask.dtype is torch.bool
    assert mask.shape == (2, 1, 1, 5)
    assert torch.equal(mask[:, 0, 0], valid)


def test_the_causal_mask_is_a_lower_triangle():
    assert causal_mask(3)[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_with_a_history_the_triangle_is_shifted_by_its_length():
    assert causal_mask(2, num_past=3)[0, 0].int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_one_query_may_attend_to_all_that_is_cached_and_to_itself():
    assert causal_mask(1, num_past=4).all()


def test_the_causal_mask_says_what_the_kernel_does_when_told_to_be_causal():
    query, key, value = (torch.randn(2, 2, 4, 3, dtype=torch.float64) for _ in range(3))
    masked = scaled_dot_product_attention(query, key, value, causal_mask(4))
    torch.testing.assert_close(masked, scaled_dot_product_attention(query, key, value, is_causal=True))


def test_masks_are_made_on_the_device_that_is_asked_for():
    assert causal_mask(2, device=torch.device("meta")).device.type == "meta"


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_prefix_mask_says_for_each_pair_whether_it_is_real_and_not_in_the_future_of_the_target(bidirectional):
    valid = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1, 0], [0, 0, 1, 1, 1, 1, 1]], dtype=torch.bool)
    num_source = 4
    mask = prefix_mask(valid, num_source, bidirectional)
    assert mask.shape == (3, 1, 7, 7)
    for b in range(3):
        for query in range(7):
            for key in range(7):
                in_source = query < num_source and key < num_source
                allowed = valid[b, key] and (key <= query or (bidirectional and in_source))
                assert mask[b, 0, query, key] == allowed, (b, query, key)


def test_a_prefix_of_nothing_leaves_a_causal_mask():
    valid = torch.ones(2, 3, dtype=torch.bool)
    assert torch.equal(prefix_mask(valid, 0, bidirectional=True), causal_mask(3).expand(2, 1, 3, 3))


def test_the_document_mask_is_causal_and_ends_at_the_border_of_a_document():
    mask = document_mask(torch.tensor([[5, 5, 6, 6, 6], [0, 0, 0, 0, 0]]))
    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]
    assert torch.equal(mask[1], causal_mask(5)[0])
