"""dpack: exactly the shared objects that a GPU program needs, and an account of every byte.

The flow goes one way::

    Request ─┐
    Sysroot ─┼─ resolve ─► Closure ─ decide ─► Plan ─ transform ─► Items ─ emit ─► Bundle
    Recipes ─┘   objects, edges,     decisions,    strip, rpath     tar, directory
                 misses              with reasons                  account ─► Manifest, tables

The Plan is the product: everything before it only reads, everything after it is mechanical.

errors       DpackError: what, why, what was tried, the next step
recipes/     TOML ─► validated recipes; the only reader of the folder recipes/
resolve/     machine · elf (one file's facts) · sysroot (the input file system) · cache (ld.so.cache, ld.so.conf)
             · search (ld.so's rules) · symbols · strings · dlopen (recipe, note and string evidence) · imports
             · closure (the nouns) · walk (resolve itself)
plan         the nouns: Decision, Change, Conflict, Plan;  decide  makes a plan of a closure, purely, with
changes      which files are stripped or get an rpath
source/      wheels from the package index into a cache; needs  maps sonames to distributions
request      recipes, resolve, fetch, decide: the one function behind every command
transform/   executes the plan's changes: strip · rpath (lief) · verify (reads back with pyelftools)
emit/        items ─► deterministic tar or directory, compressed, whole or not at all
account/     origin · licence · requirements · chain · manifest · compare · table · report · tree
bundle       transform, emit and account of a plan
cli/         one module a command: parse, call one function, print one result

Imports point down this flow and never back, and each third-party library has one place;
tests/test_architecture.py holds both.

Promises: the target is never executed. Every keep and every drop has a reason. Nothing is dropped on a guess.
Vendor files stay byte for byte. The same input gives the same output. No output is ever half written. Sizes are
decimal. Exit codes: 0 done, 1 the answer is no, 2 wrong usage; results on stdout, the rest on stderr.
"""

__version__ = "0.1.0"
