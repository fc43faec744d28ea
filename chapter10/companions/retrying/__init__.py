"""A call that failed: again, not yet, or not at all.

A call goes to a dependency. `adaptive_limit` says how many may be there at once, by the tail of its latest
answers; `circuit_breaker` says whether it is to be called at all while it mostly fails. The call fails. Before
anything sleeps, `retry` asks four questions: may this effect be repeated, is there time, is there anything left in
the bucket, is the breaker closed? `adaptive_caller` is one policy and one breaker, put together under the
document's names.

In: a call, its effect, the time that is left. Out: its value, or the last fault and the reason why it was not
repeated.
"""
