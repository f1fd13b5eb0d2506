"""What a caller may give as a text. Checked by the engine that takes it: `hf.checked_text`, native/bind/text.h."""

Text = str | bytes | bytearray | memoryview
"""Bytes are UTF-8."""
