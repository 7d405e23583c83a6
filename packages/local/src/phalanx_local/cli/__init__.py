"""Commands that start a part of the local cluster; `phalanx` lists them beside its own commands."""
