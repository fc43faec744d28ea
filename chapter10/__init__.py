"""chapter10: how an agent finds a tool, calls it, and stays responsible for work that outlives the request.

Six files are the chapter, in reading order; import from the module that owns a name, nothing is re-exported:

    quickstart   one job, its receipt first
    catalog      which tools exist, which may be found, which are loaded, which may run now
    concurrency  independent reads, a few at a time
    database     one SQLite file, one transaction a write
    jobs         work that outlives the request
    experiments  wires them together and writes down what happened

Beneath them stand `canonical` (one form for each value) and `limits` (what may come in); above them the rooms of
`companions`, for real programs, and of `lab`, to learn in. Start with `python -m chapter10`.
"""

import sys

# Old syntax on purpose: an old Python must be able to read this file to say why it stops.
if sys.version_info < (3, 11):
    sys.stderr.write("chapter10 needs Python 3.11 or later; this is %d.%d.\n" % sys.version_info[:2])
    sys.exit(3)
