/* Puts digits.txt into the executable, so that it needs no file beside it. */
    .section .rodata
    .globl digits_begin
    .globl digits_end
digits_begin:
    .incbin DIGITS_FILE
digits_end:
    .section .note.GNU-stack, "", %progbits
