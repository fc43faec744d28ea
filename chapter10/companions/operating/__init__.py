"""One export of your own, from the command line to the sentence that a person reads.

`jobs_command` takes the line that was typed. `submit` goes to `exports`, which writes down which file is meant, by
its path and its bytes; a worker reads exactly that file through `sales`, as a stream of any length, and leaves a
summary and tables. Meanwhile `jobs_watch` shows each event once, and `status` says in one sentence how things
stand, and no more than is known. An operator has one screen, `jobs_top`, and starts several workers as a
`jobs_crew`. What all of them say to a person stands in `jobs_words`, in Chinese and in English.

In: a command, a sales file. Out: a report with the digest of each table; a sentence; an exit code.
"""
