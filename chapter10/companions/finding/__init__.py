"""The tools of a real server, found as fast in 300,000 as in 300.

A server answers `tools/list`. `tool_list` reads that document, decides what it leaves open (keywords, effect,
permission), and gives tools of the chapter's catalog. Put into `indexed_catalog` instead of `Catalog`, they are
found through `postings`: which tools have which word, kept as sets of numbers, so that a search costs what it finds
and not what there is. Every answer has the bytes that `Catalog.search` gives; only the time differs. A plain
question goes to `ranking` instead: `words` takes it apart, and what is counted is only what these grants may see.

In: a `tools/list` document; a query or a plain question, and grants. Out: catalog tools; the same cards,
definitions and refusals.
"""
