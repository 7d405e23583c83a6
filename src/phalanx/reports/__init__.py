"""Reports for people and programs: reasons of waiting, account usage, and effects of evictions."""
