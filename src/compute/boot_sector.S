# boot_sector.S — the smallest guest for tests: says what happens on COM1 and obeys one byte from it.
#   prints "BOOT <byte 510-1 tag>" ; then reads COM1 without end:
#   'q' switches the machine off (ACPI S5), 'r' resets it, 'd' reads sector 1 of disk 0x80 and prints its first 8 bytes,
#   'w' writes 8 bytes "WRITTEN!" there, 'h' halts for ever with interrupts off, 'i' ignores the power button from now on.
# The power button (ACPI fixed event of q35, PM base 0x600) switches the machine off, as an operating system would.
.code16
.globl _start
_start:
    cli
    xor %ax, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    mov $0x7c00, %sp
    mov %dl, drive
    sti
    # COM1: 115200 8N1
    mov $0x3fb, %dx
    mov $0x80, %al
    out %al, %dx
    mov $0x3f8, %dx
    mov $1, %al
    out %al, %dx
    inc %dx
    xor %al, %al
    out %al, %dx
    mov $0x3fb, %dx
    mov $3, %al
    out %al, %dx
    # ACPI: the power button sets its status bit only when enabled
    mov $0x602, %dx
    mov $0x100, %ax
    out %ax, %dx
    mov $hello, %si
    call puts
loop:
    mov $0x600, %dx
    in %dx, %ax
    test $1, %ah
    jz no_button
    mov $0x100, %ax
    out %ax, %dx
    mov $button, %si
    call puts
    cmpb $0, ignore
    je off
no_button:
    mov $0x3fd, %dx
    in %dx, %al
    test $1, %al
    jz loop
    mov $0x3f8, %dx
    in %dx, %al
    cmp $'q', %al
    je off
    cmp $'r', %al
    je reset
    cmp $'h', %al
    je halt
    cmp $'d', %al
    je read_disk
    cmp $'w', %al
    je write_disk
    cmp $'i', %al
    jne loop
    movb $1, ignore
    mov $ign, %si
    call puts
    jmp loop
read_disk:
    mov $0x02, %ah
    call disk
    jc disk_bad
    mov $0x7e00, %si
    movb $0, 0x7e08
    call puts
    jmp newline
write_disk:
    mov $written, %si
    mov $0x7e00, %di
    mov $8, %cx
    rep movsb
    mov $0x03, %ah
    call disk
    jc disk_bad
    mov $ok, %si
    call puts
    jmp loop
disk_bad:
    mov $bad, %si
    call puts
    jmp loop
newline:
    mov $crlf, %si
    call puts
    jmp loop
disk:
    mov $0x01, %al
    mov $0x0002, %cx
    mov $0x00, %dh
    mov drive, %dl
    mov $0x7e00, %bx
    int $0x13
    ret
off:
    mov $0x604, %dx
    mov $0x2000, %ax
    out %ax, %dx
halt:
    cli
    hlt
    jmp halt
reset:
    mov $0xcf9, %dx
    mov $0x06, %al
    out %al, %dx
    jmp halt
puts:
    lodsb
    test %al, %al
    jz 2f
    mov %al, %bl
    mov $0x3fd, %dx
1:  in %dx, %al
    test $0x20, %al
    jz 1b
    mov $0x3f8, %dx
    mov %bl, %al
    out %al, %dx
    jmp puts
2:  ret
hello:   .asciz "BOOT OK\r\n"
button:  .asciz "BUTTON\r\n"
ign:     .asciz "IGNORING\r\n"
ok:      .asciz "WROTE\r\n"
bad:     .asciz "DISK ERROR\r\n"
crlf:    .asciz "\r\n"
written: .ascii "WRITTEN!"
drive:   .byte 0
ignore:  .byte 0
    .org 510
    .word 0xaa55
