"""The encoder: source ids in, one vector for each source position out."""

from seq2seq.models.stack import Stack, block_output
from seq2seq.nn.block import Block
from seq2seq.nn.masks import padding_mask
from seq2seq.nn.positions import Places
from seq2seq.nn.varlen import PackedMask, Packing
from seq2seq.shapes import Bool, Float, Int, Tensor


class Encoder(Stack[Block]):
    """Embedding and N blocks that see the whole source."""

    def forward(
        self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"], packing: Packing | None = None
    ) -> Float[Tensor, "B S D"]:
        """The memory that the decoder attends to. What stands at padded positions means nothing.

        Padding may stand on either side: positions are counted from the first real piece.

        Args:
            src: Source ids.
            src_valid: True at real positions.
            packing: Of `src_valid`, to compute those alone.
        """
        places = Places.of_valid(src_valid)
        x = self.embedding(src, places)
        mask: Tensor | PackedMask = padding_mask(src_valid)
        if packing is not None:
            x, places, mask = packing.pack(x), packing.pack_places(places), PackedMask(packing, packing)
        rotation = self.rotation(places, x)
        for layer in self.blocks():
            x = self.run(block_output, layer, x, mask, False, rotation)
        x = self.final_norm(x)
        return x if packing is None else packing.unpack(x)
