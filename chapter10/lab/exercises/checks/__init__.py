"""The checks of the coding exercises; they judge a reader's file, and are no tests of ours.

A reader's file walks in, loaded by the judge. `ex06` searches with and without the permission, `ex07` loads at the
budget and one byte below, `ex08` runs five calls two at a time, `ex09` adds a sale, `ex10` delivers late, `ex11`
lets two connections compete.

In: a module that a reader wrote. Out: the first check that it fails, or that it passes.
"""
