"""One exercise, from the stub to the verdict.

`start 6` copies the stub of exercise 6 to the reader's folder; `book` knows its title, hints and files. The reader
edits it. `check 6` starts `judge` in a child process, which loads that file and hands it to the module of this
number in `checks`. A check is a row of calls in the words of `checking`, and ends at the first that is not what it
should be; exercise 11 goes through every order of two workers with `schedules`. `answer 6` opens when the check
passes. `progress` shows on one screen what is done, guessed and taken out.

In: a number, a reader's file. Out: what was called, what came back, what was expected, and why.
"""
