"""Accounts for every byte of a bundle: where it came from, why it is there, what was left out.

size          bytes as people read them
origin        where a file came from: a wheel, a Debian package, or a plain file
licence       the licence texts found beside it
requirements  what the host must provide
chain         the steps from the program to one library
totals        files and bytes, group by group
manifest      all of these as ``dpack.json``; schema: its JSON Schema
compare       the size tables as values; table: as text or Markdown
"""
