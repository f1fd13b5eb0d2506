"""A GGUF file with its quantized weights written out as 32-bit floats: the same numbers, for processors and builds
whose quantized kernels do not go together. Not here: any other conversion.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
from gguf.quants import dequantize


def write_floats(model: Path, out: Path) -> None:
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        value: Any = field.contents()
        if isinstance(value, list) and not value:
            continue
        kinds = field.types
        writer.add_key_value(name, value, kinds[0], kinds[-1] if kinds[0] is gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        # Shapes of the reader are the file's, innermost first; those of its data are numpy's.
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype("f4", copy=False))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
