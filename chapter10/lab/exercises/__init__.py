"""The chapter's fourteen exercises: the command, the pristine stubs, the checks, and the answers kept apart."""
