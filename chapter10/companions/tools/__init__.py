"""One call of a model, from the block of its answer to the text of the next request.

`gateway` holds the conversation. While the model still answers, it takes each block that is complete;
`tool_calls` makes a call of it and reads its arguments. `executor` decides which calls run together and which
alone, and answers each one once. On its way every call passes `registry`: `tool_spec` says what the tool takes
and who may call it, `attempt` gives the handler a place and some seconds and knows how it ended, `returned`
reads what it returned, `result_text` makes a text of it and cuts it where it is safe, and `redaction` takes the
secrets out before. `result_budget` decides how much of that text the next request holds; what it leaves out
lies whole in `result_store`. `transcript` says when the conversation that comes of it is valid, and writes
tools as providers take them.

In: the blocks of a model's answer, grants. Out: one result for each call, and the messages of the next request.
"""
