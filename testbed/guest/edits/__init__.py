"""The edits themselves, by what they are for: an exact clock, repeatable runs, speed."""
