"""Commands that submit, list, describe and control jobs."""
