"""The experiments beside the chapter's five: one group a file, each with its figures, pictures and words."""
