"""What surrounds the chapter's three modules, one idea a file; none of them is imported by those three."""
