"""One job, from its place in line to its receipt, by processes that die.

A caller submits to `living_store`: a `JobStore` in every verb of the chapter, and what a store needs that lives
for years. Many processes write to the file, so each waits its turn at the `turnstile`. A `worker` claims the next
job and starts its handler, `heartbeat` renews the lease meanwhile; a handler that never looks runs in a
`child_process` that can be ended, one with more reads than memory pulls them through `stream_reads`. If the worker
freezes and another one takes the job, what it delivers late is refused, and stands in `worker_log`. Whoever wants it
to leave sends a signal, and `stop_signals` hears it whatever the worker waits for. Most jobs are calls of a typed
function: `functions` makes kind, check and handler of it.

In: a job with its key. Out: one receipt, or a recorded end; a line in the log for each late delivery.
"""
