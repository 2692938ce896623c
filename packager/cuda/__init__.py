"""GPU code inside ELF files: read it, choose what a GPU can run, cut out the rest.

code         the nouns: Member, Container, Loose, Section, GpuCode
fatbin       one container; loose  one cubin outside any; compression  their zstd frames and LZ4 blocks
sections     where in a file to look, and what .nvFatBinSegment points at
scan         a file ─► GpuCode
select       GpuCode and GPUs ─► what stays
kernels      the names of the kernels in each piece
cut          what stays ─► a smaller file
"""
