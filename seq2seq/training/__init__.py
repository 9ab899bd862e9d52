"""Training with Lightning: loss, schedule, module, data module, callbacks, and `fit` that puts them together."""
