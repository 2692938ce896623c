"""dpack: exactly the shared objects that a GPU program needs, and an account of every byte.

The flow goes one way::

    Request ─┐
    Sysroot ─┼─ resolve ─► Closure ─ decide ─► Plan ─ transform ─► Items ─ emit, oci ─► Bundle, Image
    Recipes ─┘   objects, edges,     decisions,    strip, rpath,    tar, directory, layers
                 misses              with reasons  slice            account ─► Manifest, tables

The Plan is the product: everything before it only reads, everything after it is mechanical.

errors       DpackError: what, why, what was tried, the next step
arch         names of GPU architectures, and which code runs on which GPU
worker       calls in a process beside this one;  place  output written beside its place, then renamed
recipes/     TOML ─► validated recipes, the only reader of recipes/: table, reader · values, host, target (nouns)
             · globs, references (checks) · catalogue (look-up) · layout, describe, devices (for people)
resolve/     machine · elf (one file's facts) · sysroot (the input file system) · cache (ld.so.cache, ld.so.conf)
             · search (ld.so's rules) · symbols · strings · dlopen (recipe, note and string evidence) · imports
             · closure (the nouns) · walk (resolve itself) · versions, verdef, provided (the C library of a root)
             · hostcsv (what a Jetson mounts)
cuda/        code (the nouns) · scan, fatbin, loose (read GPU code) · select (what stays) · cut (a smaller file),
             with relocations among its tables · question (all of it for one file);  slicing  files alone
destination  where the bundle is to run: platform, GPUs, what the system there supplies
request      what the user asks for, as values
plan         the nouns: Decision, Change, Slice, Conflict, Plan;  decide  makes a plan of a closure, purely, with
changes      which files are stripped or get an rpath;  cautions  what to look at
gpu          which kept files have code for the GPUs, and what is cut out of them
jit          whether cuDNN's JIT distribution serves a program
source/      wheels from the package index into a cache; needs  maps sonames to distributions
transform/   executes the plan's changes: apply ─► strip · rpath (lief) · slice · verify (read back by pyelftools)
             · worker  does so in a process of its own
emit/        items ─► deterministic tar or directory, compressed, whole or not at all
oci/         descriptor · documents · layer · layout · write (images); base/ (images to build on, scratch)
registry/    push and pull over the distribution API; layout  what can be pushed
ground       recipes, destination, base and loader of a request;  fit  what the destination adds to a plan
analysis     from a request to a plan: the one function behind every command about a program
account/     origin · licence · requirements · chain · manifest · compare · table · report · tree · gpu · slicing
contents     what goes where;  bundle, image  transform, emit and account of a plan
cli/         one module a command: parse, call one function, print one result; shared: options, output, sections,
             progress, printing, interrupt

The modules that a line leaves out are named where the room's own ``__init__`` begins. Imports point down this
flow and never back, and each third-party library is imported in a few named places only;
tests/test_architecture.py holds all three.

Promises: the target is never executed. Every keep and every drop has a reason. Nothing is dropped on a guess.
Vendor files stay byte for byte. The same input gives the same output. No output is ever half written. Sizes are
decimal. Exit codes: 0 done, 1 the answer is no, 2 wrong usage; results on stdout, the rest on stderr.
"""

__version__ = "0.1.0"
