"""Parts of a Transformer: masks, positions, embeddings, attention, feed-forward, dropout, initialisation, cache."""
