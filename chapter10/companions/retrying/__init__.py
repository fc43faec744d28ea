"""A call that failed: again, not yet, or not at all.

A call goes to a dependency. `adaptive_limit` says how many may be there at once, by the tail of its latest
answers; `circuit_breaker` says whether it is to be called at all while it mostly fails. The call fails. Before
anything sleeps, `retry` asks four questions: may this effect be repeated, is there time, is there anything left in
the bucket, is the breaker closed? `retried` is the same for a function that
blocks, and as a decorator; `adaptive_caller` is one policy and one breaker under the document's names.

One order holds, from the outside in; who stands further out sees what the inner ones make of an ending:

    budget          `run_within`, `tool_with_budget`: the time of the whole chain
    idempotency     `execute_once`: one record for the intent, however often it is tried
    retry           `retry(…, budget=…, breaker=…)`: the same budget, so that no wait outlasts it
    breaker         one permit for each attempt, taken by `retry`
    attempt         `connect_then_read`, `answer_within`: limits of its own

    ending of an attempt          breaker   retry                        record of the intent
    a value                       success   gives it back                completed, replayed from now on
    nothing was sent              failure   again                        free
    the answer was lost           failure   a read again; a write asks   unknown, unless it is repeatable
    refused for good              neutral   stops, `permanent`           free; `FailedFinal`: kept and replayed
    the caller's rest was short   neutral   stops, `budget_exhausted`    unknown, unless it is repeatable
    no time for an attempt        not asked does not call                free
    the circuit is open           refuses   does not call                free
    the caller cancels            neutral   never caught                 unknown, unless it is repeatable

Wrong the other way round: a breaker around `retry` counts one failure for many and holds its one probe while it waits;
a retry around `run_within` or a record of its `Outcome` takes failures for values, so all three refuse an `Outcome`
(give them `outcome.get()`); a record inside an open transaction of its own database is refused as `second_owner`.

In: a call, its effect, the time that is left. Out: its value, or the last fault and the reason why it was not
repeated.
"""
