"""What another scheduler's objects mean here: object by object, field by field."""
