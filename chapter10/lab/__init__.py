"""What a reader uses to learn: predict and compare, exercises, an explorer of histories, a benchmark."""
