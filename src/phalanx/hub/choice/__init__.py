"""Which cluster a gang goes to: what is asked, whose turn it is, and when a choice is taken back."""
