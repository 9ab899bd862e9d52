"""Other people's weights in and out: a bundle from a Hugging Face folder, and a folder from a bundle.

Nothing here imports `transformers`: config.json, safetensors and the tokenizer's files are read and written directly.
"""

from seq2seq.interop.hugging_face import import_hugging_face, is_hugging_face
from seq2seq.interop.hugging_face_export import export_hugging_face

__all__ = ["export_hugging_face", "import_hugging_face", "is_hugging_face"]
