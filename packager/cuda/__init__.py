"""GPU code inside ELF files: read it, choose what stays for some GPUs, and cut the rest out.

code      the nouns: GpuCode ⊃ Container ⊃ Member, and Loose for cubins outside every container
scan      a file ─► GpuCode;  sections  where to look · fatbin  one container · loose, compression  other cubins
kernels   names of kernels
select    what of it stays for some GPUs, and whether a GPU can run any of it
cut       a smaller file ─ image  its tables · regions  its GPU code by section · pointers, instructions  what
          points there · rebuild  packed or in place · holes  pages that go · layout, assemble  the new tables
          · stream  written
question  all of it for one file, as a process beside this one answers it
"""
