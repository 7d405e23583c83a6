"""Lists as kubectl's users know them: options, formats, tables, node lists."""
