"""What real programs need around the chapter's floor, a room an idea; the floor imports none of it.

The rooms, from below; each one's docstring follows one call, one message or one job through its files.

    basics          what is let in, and a task that is owned
    schemas         a model's arguments, from text to a verdict
    finding         the tools of a real server, found as fast in 300,000 as in 300
    tools           one call of a model, from the block of its answer to the text of the next request
    interruption    one deadline and one cancel, through a chain of calls and across processes
    retrying        a call that failed: again, not yet, or not at all
    effects         one effect for one intent, and a message that leaves with the write
    work            one job, from its place in line to its receipt, by processes that die
    operating       one export of your own, from the command line to the sentence that a person reads
    serving         one message of an MCP client, from the line that came in to the line that goes out
"""
