"""One visit of a reader.

`doctor` says whether the machine is fit. On a terminal `story` tells a group of the experiments in the reader's
language; `experiments_command` says which options mean something together, `own_data` puts the reader's tools and
sales in the place of the fixtures. `guess` asks before it runs, for every group; the groups of the companions come
from `companion_experiments`. Who has no terminal opens the page that `site` writes.

In: a command with its options. Out: a story, a comparison or JSON; a page; an exit code.
"""
