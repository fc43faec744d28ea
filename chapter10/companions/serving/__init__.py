"""A door for clients of MCP: one message, from the line that came in to the line that goes out.

`serve` reads the options, and `pipes` takes the two descriptors and reads lines; `messages` says what a line is, and
what is wrong with it; `greeting` finds the era and answers what needs no tools; `session` keeps what is open, and
answers; `offer` decides what this identity sees and calls it through the registry; `task_handles` turns a call that
outlives its request into a job and a job into a task. `door` puts them together, and `loading` makes tools of a module
and a file. Behind it `upstream` speaks to other servers in the same way, and `pins` holds back what they change.

In: lines of standard input. Out: one line for each that asks, and nothing else on standard output.
"""
