"""You are the scheduler: the life of a job on one page that plays with the real store's answers.

`recorder` asks the real store what every action does from everywhere in the small world of `lab.histories`, with
all guards and without each of them; `packing` makes one short text of that and reads it back; `play` plays by such a
text, as the script of the page does; `page` writes the page, reports/scheduler.html, with what `words` has to say.

In: the store and its guards. Out: one file that needs no server, no network and no library.
"""
