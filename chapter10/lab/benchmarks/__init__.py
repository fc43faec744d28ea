"""One figure, beside what nothing in Python could beat.

`benchmark` takes the command and goes through the areas. Each area sets up our way and the bare one on the same
rows: `search_area`, `reads_area`, `jobs_area` (with `contention`, processes on one file), `json_form`,
`tools_area`, `outbox_area`, `ranking_area` (with `recall`, how often a question finds its tool). `instrument` runs
the two in turns, again and again, and keeps the ratio, because a machine that does other things too spoils seconds,
and spoils both alike.

In: two ways to do one thing. Out: seconds of each, the ratio, and whether it is within the stated bound.
"""
