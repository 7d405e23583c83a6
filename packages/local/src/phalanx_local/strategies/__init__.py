"""What each kind adds to the generic life of an object: defaults, admission, rules, selectable fields."""
