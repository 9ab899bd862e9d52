"""Files of parallel text and the batches made of them."""
