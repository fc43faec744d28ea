"""The checks of the coding exercises, one module each; they judge a reader's file, and are no tests of ours."""
