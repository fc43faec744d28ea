"""One sentence of the book: where it is promised, proved and broken.

`claims` has the sentence by its number and finds in the sources which docstring promises it and which test names
it; `claim_map` shows that, one claim or all. Does the test prove it? `mutations` makes a small fault in the code,
`mutants` runs the tests on it in a copy of the tree, those first that `touched` saw on its line, and `proofs` only
those tests that name the claim: at least one must fail. `fuzz` calls everything in `fuzz_subjects` with bad input
and sees that nothing changes; `options` takes every option from its command and sees that a test misses it.

In: the number of a claim; a fault; bad input. Out: places, tests, the command that breaks it; what no test
noticed.
"""
