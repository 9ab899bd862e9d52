"""The encoder: source ids in, one vector for each source position out."""

from seq2seq.models.stack import Stack
from seq2seq.nn.block import Block
from seq2seq.nn.masks import padding_mask
from seq2seq.nn.positions import Places
from seq2seq.shapes import Bool, Float, Int, Tensor


class Encoder(Stack[Block]):
    """Embedding and N blocks that see the whole source."""

    def forward(self, src: Int[Tensor, "B S"], src_valid: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """The memory that the decoder attends to. What stands at padded positions means nothing.

        Padding may stand on either side: positions are counted from the first real piece.
        """
        places = Places.of_valid(src_valid)
        x, mask = self.embedding(src, places), padding_mask(src_valid)
        rotation = self.rotation(places, x)
        for layer in self.blocks():
            x = layer(x, mask, rotation=rotation)
        return self.final_norm(x)
