"""A door for clients of MCP: one message, from the line that came in to the line that goes out.

`serve` reads the options, and `pipes` takes the two descriptors from everybody else and reads lines. `messages` says
what a line is, and what is wrong with it; `greeting` finds the era and answers what needs no tools. `session` keeps
what is open until it is answered or cancelled. `offer` decides what this identity sees, and calls it through the
registry; `task_handles` turns a call that outlives its request into a job, and a job into a task. `door` puts them
together, and `loading` makes tools of a module and a file. `bridge` makes tools of what another server lists; behind
the door `upstream` keeps such servers as children, and `pins` holds back what they change.

In: lines on standard input, and what was named at the start. Out: messages on standard output, and nothing else there.
"""
