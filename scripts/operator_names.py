"""What the operators that torch's profiler names do."""

_PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "addmm_", "_addmm_activation", "linear", "matmul", "mkldnn_linear"}
)
_PRODUCT_PREFIXES = ("mkldnn::", "onednn::")
_ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention", "cudnn_attention")


def is_product(name: str) -> bool:
    """Whether an operator is a matrix product, apart from those inside an attention kernel."""
    return name.removeprefix("aten::") in _PRODUCTS or (name.startswith(_PRODUCT_PREFIXES) and "linear" in name)


def is_attention(name: str) -> bool:
    """Whether an operator is a fused attention kernel."""
    return any(part in name for part in _ATTENTION)
