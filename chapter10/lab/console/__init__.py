"""One sentence on its way to a person, and one file of a reader on its way in.

A program has something to say. `strings` has the sentence in Chinese and in English and decides which; `textio`
puts it on the console: in columns that fit, as lanes, as a picture, with escapes for what the console lacks, and
with the exit code that says who has to act. In the other direction `workplace` finds the file that the reader
wrote and decodes it, whatever editor saved it. This room stands beneath all others, because commands of the
companions speak as well.

In: an id and values, events; a file of a reader. Out: text in the reader's language, an exit code; the file's
text.
"""
