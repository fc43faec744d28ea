"""One deadline and one cancel, through a chain of calls and across processes.

A chain of calls begins with one deadline: `budget` tells each call what is left of it and keeps the call within.
Then somebody cancels. `cancel_store` writes it down as a row, by trace and span, so that work which is born later
finds it too. In each process `cancellation` makes a token of it: coroutines stop at their next await, loops and
threads where they look, with a grace to clean up. For a process that never looks there is `process_stop`: ask,
insist, end.

In: a deadline; a cancel for a trace. Out: work that has stopped, and how; what could not be stopped is said to be
so.
"""
