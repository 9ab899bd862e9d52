"""The GPT switch: one causal stack that reads source, separator and target in a row, or plain text.

A pair becomes one sequence. The closing EOS of the source is left out, and BOS, with which every target begins, is the
one piece that separates both sides:

    src = a b c EOS,  tgt_in = BOS x y,  tgt_out = x y EOS
    sequence            a b c  BOS x y
    predicted at BOS x y:      x   y EOS

Rows of a batch are uneven, so padding may stand between both sides (or before the source). It is masked, and positions
are counted over real pieces only: a row's result is the same whatever its padding.

Source:
    Radford et al. 2018 (GPT); Liu et al. 2018, arXiv:1801.10198, section 4.2.3 (source, separator, target in a row).
"""

from dataclasses import replace
from itertools import islice

from torch import cat, nn
from torch.nn.functional import pad

from seq2seq.models.stack import Execution, Stack, block_output
from seq2seq.models.transformer import AttentionMaps, State, Transformer
from seq2seq.nn.attended import Attended
from seq2seq.nn.attention import attention_weights
from seq2seq.nn.block import Block
from seq2seq.nn.cache import Cache, CausalState, History
from seq2seq.nn.embedding import Mixture
from seq2seq.nn.masks import document_mask, padding_mask, prefix_mask
from seq2seq.nn.pool import PooledState
from seq2seq.nn.positions import Places
from seq2seq.nn.varlen import PackedMask, Packing
from seq2seq.shapes import Bool, Float, Int, Tensor


class DecoderOnly(Transformer):
    """Causal blocks over one sequence.

    Args:
        decoder: Embedding and blocks; its embedding's table may be `output` too.
        output: The [V, D] matrix that gives logits.
        output_bias: Added to the logits; None without.
        prefix_lm: Whether positions of the source see the whole source.
    """

    def __init__(
        self, decoder: Stack[Block], output: nn.Parameter, output_bias: nn.Parameter | None, prefix_lm: bool = False
    ) -> None:
        super().__init__()
        self.decoder = decoder
        self.output = output
        self.output_bias = output_bias
        self.prefix_lm = prefix_lm

    def execute(self, how: Execution) -> None:
        """Compute so in training from now on; what stands end to end is causal, so not for a prefix language model."""
        assert not (how.padding_free and self.prefix_lm), "the source of a prefix language model is seen whole"
        super().execute(how)

    def hidden(
        self,
        ids: Int[Tensor, "B T"],
        places: Places,
        mask: Bool[Tensor, "#B 1 T T"] | None = None,
        mixture: Mixture | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The output at every position of a sequence; causal where no mask is given."""
        x = self.decoder.embedding(ids, places, mixture)
        return self._through(x, places, mask, causal=mask is None)

    def _packed_hidden(
        self, ids: Int[Tensor, "B T"], places: Places, packing: Packing, mixture: Mixture | None
    ) -> Float[Tensor, "B T D"]:
        """The output at every position that is kept, of causal sequences; zeros elsewhere."""
        x = packing.pack(self.decoder.embedding(ids, places, mixture))
        x = self._through(x, packing.pack_places(places), PackedMask(packing, packing), causal=True)
        return packing.unpack(x)

    def _through(
        self,
        x: Float[Tensor, "B T D"],
        places: Places,
        mask: Bool[Tensor, "#B 1 T T"] | PackedMask | None,
        causal: bool,
    ) -> Float[Tensor, "B T D"]:
        """All blocks and the last norm."""
        rotation = self.decoder.rotation(places, x)
        for block in self.decoder.blocks():
            x = self.decoder.run(block_output, block, x, mask, causal, rotation)
        return self.decoder.final_norm(x)

    def read(
        self,
        ids: Int[Tensor, "B T"],
        documents: Int[Tensor, "B T"] | None = None,
        mixture: Mixture | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The output at every position of plain text without padding.

        Args:
            ids: Blocks of text.
            documents: For each position the number of its document, ascending: no attention from one to another, and
                positions are counted anew in each. None reads a block as one text.
            mixture: What stands in the place of some ids.
        """
        if documents is None:
            return self.hidden(ids, Places.span(0, ids.shape[1], ids.device), None, mixture)
        mask = document_mask(documents)
        places = Places(mask[:, 0].sum(-1) - 1, ids.shape[1])
        if self.packs:
            return self._packed_hidden(ids, places, Packing.of_documents(documents), mixture)
        return self.hidden(ids, places, mask, mixture)

    def read_pairs(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
        mixture: Mixture | None = None,
    ) -> Float[Tensor, "B S-1+T D"]:
        """The output at every position of source, separator and target: S - 1 of the source, then T.

        A mixture stands in the place of target ids.
        """
        ids, valid = _in_a_row(src, src_valid, tgt_in, tgt_valid)
        num_source = src.shape[1] - 1
        if mixture is not None:
            mixture = Mixture(pad(mixture.where, (num_source, 0)), mixture.vectors)
        places = Places.of_valid(valid)
        if self.packs:
            return self._packed_hidden(ids, places, Packing.of_valid(valid), mixture)
        return self.hidden(ids, places, prefix_mask(valid, num_source, self.prefix_lm), mixture)

    def decode(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
        mixture: Mixture | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The output at every target position, before the projection onto the vocabulary."""
        assert memory is None, "source and target are read in a row"
        return self.read_pairs(src, src_valid, tgt_in, tgt_valid, mixture)[:, src.shape[1] - 1 :]

    def read_source(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> None:
        """Nothing: source and target are read in a row in each pass."""

    def start(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> CausalState | PooledState:
        """The state that decoding begins with: the source read, without its EOS, all positions at once."""
        if self.compiled is not None:
            return self.compiled.start(src, src_valid)
        return self.prefill(src[:, :-1], without_last(src_valid))[1]

    def prefill(
        self, ids: Int[Tensor, "B P"], valid: Bool[Tensor, "B P"]
    ) -> tuple[Float[Tensor, "B P D"], CausalState]:
        """The output at every position of prompts, and the state after them.

        Args:
            ids: Prompts, padded on either side; P may be 0.
            valid: True at real pieces.
        """
        history = History(Cache(len(self.decoder.layers), len(ids)), fixed=ids.shape[1])
        next_place = valid.sum(1, keepdim=True)
        state = CausalState(history, ids.shape[1], next_place, padding_mask(valid))
        if ids.shape[1] == 0:
            return self.output.new_empty(len(ids), 0, self.output.shape[1]), state
        mask = prefix_mask(valid, ids.shape[1], self.prefix_lm)
        hidden, cache, _ = self._extend(ids, Places.of_valid(valid), mask, state)
        cache = replace(cache, length=ids.shape[1])
        seen = None if valid.all() else valid[:, None]
        return hidden, replace(state, history=replace(history, cache=cache, seen=seen))

    def step_hidden(self, tokens: Int[Tensor, "R T"], state: State) -> tuple[Float[Tensor, "R D"], State]:
        """The output at the last of the given pieces, and the state with them added. The old state is used up."""
        if isinstance(state, PooledState):
            assert self.compiled is not None
            return self.compiled.step(tokens, state)
        assert isinstance(state, CausalState)
        count = tokens.shape[1]
        index = state.next_place + Places.span(0, count, tokens.device).index
        history, mask = state.history.prepare(len(tokens), tokens.shape[1], tokens.device)
        state = replace(state, history=history, length=state.length + count)
        hidden, cache, attended = self._extend(tokens, Places(index, state.length), mask, state)
        history = history.after(cache, count, mask)
        return hidden[:, -1], replace(state, history=history, next_place=state.next_place + count, attended=attended)

    def _extend(
        self,
        ids: Int[Tensor, "R T"],
        places: Places,
        mask: Bool[Tensor, "#B 1 #Q C"] | None,
        state: CausalState,
    ) -> tuple[Float[Tensor, "R T D"], Cache, Attended | None]:
        """The output at the next positions, the cache with these set, and what has been looked at."""
        x = self.decoder.embedding(ids, places)
        rotation = self.decoder.rotation(places, x)
        cache, layout, attended = state.history.cache, state.history.layout, state.attended
        if rotation is not None and layout is not None:
            rotation = rotation.rows(layout.row_at)
        for number, block in enumerate(self.decoder.blocks()):
            if attended is not None and number == attended.layer:
                attended = attended.plus(block.step_weights(x, cache, number, state.source_mask, layout, rotation))
            x, cache = block.step(x, cache, number, mask, layout, rotation)
        return self.decoder.final_norm(x), cache, attended

    @property
    def target_table(self) -> nn.Embedding:
        """The table that target ids are looked up in."""
        return self.decoder.embedding.rows

    @property
    def source_rows(self) -> int:
        """Rows of the table that source ids are looked up in."""
        return self.decoder.embedding.rows.num_embeddings

    def _attention_maps(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None = None,
    ) -> AttentionMaps:
        ids, valid = _in_a_row(src, src_valid, tgt_in, tgt_valid)
        places, mask = Places.of_valid(valid), prefix_mask(valid, src.shape[1] - 1, self.prefix_lm)
        x = self.decoder.embedding(ids, places)
        rotation = self.decoder.rotation(places, x)
        maps = AttentionMaps([], [], [])
        for block in self.decoder.blocks():
            normed = block.residual.before(x, block.self_attention_norm)
            maps.decoder.append(block.self_attention.weights(normed, mask, rotation))
            x = block(x, mask, rotation=rotation)
        return maps

    def _cross_weights(
        self,
        src: Int[Tensor, "B S"],
        src_valid: Bool[Tensor, "B S"],
        tgt_in: Int[Tensor, "B T"],
        tgt_valid: Bool[Tensor, "B T"] | None,
        layer: int,
    ) -> Float[Tensor, "B H T S"]:
        ids, valid = _in_a_row(src, src_valid, tgt_in, tgt_valid)
        num_source = src.shape[1] - 1
        places, mask = Places.of_valid(valid), prefix_mask(valid, num_source, self.prefix_lm)
        x = self.decoder.embedding(ids, places)
        rotation = self.decoder.rotation(places, x)
        *before, last = islice(self.decoder.blocks(), layer + 1)
        for block in before:
            x = block(x, mask, rotation=rotation)
        query, key, _ = last.self_attention.project(last.residual.before(x, last.self_attention_norm), rotation)
        # a softmax over the source's keys alone is what shares the weights out anew
        seen = padding_mask(without_last(src_valid))
        return pad(attention_weights(query[:, :, num_source:], key[:, :, :num_source], seen), (0, 1))


def _in_a_row(
    src: Int[Tensor, "B S"],
    src_valid: Bool[Tensor, "B S"],
    tgt_in: Int[Tensor, "B T"],
    tgt_valid: Bool[Tensor, "B T"] | None,
) -> tuple[Int[Tensor, "B S-1+T"], Bool[Tensor, "B S-1+T"]]:
    """Source, separator and target of each pair, and which of the positions are real."""
    target = src_valid.new_ones(tgt_in.shape) if tgt_valid is None else tgt_valid
    valid = cat([without_last(src_valid), target], 1)
    return cat([src[:, :-1], tgt_in], 1), valid


def without_last(src_valid: Bool[Tensor, "B S"]) -> Bool[Tensor, "B S-1"]:
    """True at real pieces but for the last one of each row, its EOS, whichever side the padding is on."""
    return src_valid[:, :-1] & src_valid[:, 1:]
