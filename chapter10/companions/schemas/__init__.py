"""A model's arguments, from text to a verdict.

When a tool is registered, `schema` puts its JSON Schema together out of the small checks of `schema_rules`, one a
keyword, and makes each regular expression a set of states (`pattern`), so that no text makes it slow. What it does
not check it refuses now, by name, and never later by a wrong verdict. Who has a typed function need not write the
schema: `hints` makes it from the hints, and refuses by the argument's name what JSON cannot express. Then a call
comes: `strict_json` reads the text of its arguments, without repair and within bounds, and the compiled schema says
what is wrong with the value, and where.

In: a schema; the text of arguments. Out: the value as a copy, or a list of violations with their paths.
"""
