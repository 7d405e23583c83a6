"""Run times of pods: limits and estimates in all their notations, and their precedence."""
