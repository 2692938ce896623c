"""Accounts for every byte of a bundle: where it came from, why it is there, what was left out.

size          bytes as people read them
origin        where a file came from: a wheel, a Debian package, or a plain file
licence       the licence texts found beside it
requirements  what the host must provide
chain         the steps from the program to one library
totals        files and bytes, group by group
manifest      all of these as ``dpack.json``; its JSON Schema is manifest.schema.json
report        the plan as text and JSON; missing: what stands in its way
why, tree     the story of one library, the closure as a tree; words: pieces of their sentences
compare       the size tables as values; table: as text or Markdown
gpu, slicing  the GPU code of a file, and what a slice does to it, as text and JSON
"""
