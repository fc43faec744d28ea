"""What surrounds the chapter's three modules, one idea a file; none of them is imported by those three.

The tool layer, in the order in which a call passes through it

    tool_spec       a tool in one record: described, limited, implemented
    schema          which arguments are let in; beneath it strict_json, schema_rules and pattern
    registry        the one boundary of every call; beneath it attempt (a place, some seconds) and result_text
    tool_list       the tools of a real server as tools of the catalog
    executor        the calls of one answer: safe together, unsafe alone; tool_calls has the words
    result_budget   how much of the results goes into the next request; beneath it result_store
    gateway         one conversation, from the first search to the last word; transcript says when it is valid

Time, interruption and trying again

    budget          one deadline for a whole chain
    tasks           a task that is owned: how it ended is always known
    cancellation    a cancel within a process; cancel_store has one across processes, process_stop ends one
    retry           again, when that is safe and there is time
    circuit_breaker not at all, while nothing comes of it; adaptive_caller is both in the document's names
    adaptive_limit  how many calls at once

Effects, each once

    idempotency     one effect for one intent; beneath it intents (their names) and intent_records (their rows)
    outbox          a message that leaves with the write; beneath it messages and outbox_rows, beside it relay and inbox
    arguments       what those stores let in

Real work for the job store

    worker          a process that does jobs; beneath it heartbeat, beside it worker_log and child_process
    sales           a sales file as a stream; exports makes the chapter's report of it
    status          what to tell a person about a job
    experiments     what all of these decide, as evidence; scenes has one group a file
"""
