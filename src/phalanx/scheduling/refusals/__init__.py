"""Why units are refused: facts that hold for every unit with one wait reason, and the verdicts that they give."""
