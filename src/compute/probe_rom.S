# probe_rom.S — the guest by which kvm_probe.c finds out whether KVM runs guests. Its bytes are in probe_rom.h, made by
#   as --32 probe_rom.S -o p.o && ld -m elf_i386 --oformat binary -Ttext 0 -e start p.o -o p.bin && xxd -i < p.bin
# so that a build needs no assembler (compute/probe_rom test compares them where there is one). Linked at 0, it runs at
# F000:0000, linear 0xf0000. It does what every operating system does at its start and what half-working KVMs fail at:
# protected mode, interrupts with iret in 32 and 64 bit, page tables, long mode, loops over memory. Then it writes 0x10 to port
# 0xf4 (isa-debug-exit: QEMU ends with 33). Whatever goes wrong halts for ever or resets, and the time limit tells.
.set BASE, 0xf0000
.code16
.globl start
start:
    cli
    cld
    mov %cs, %ax
    mov %ax, %ds
    lgdtl %cs:gdt_ptr
    mov %cr0, %eax
    or $1, %eax
    mov %eax, %cr0
    ljmpl $8, $(BASE + pm)

.code32
pm:
    mov $16, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    mov $0x7000, %esp
    # a 32-bit IDT at 0x1000: every vector is 'back32'
    mov $0x1000, %edi
    mov $(BASE + back32), %eax
    mov $64, %ecx
1:  movw %ax, (%edi)
    movw $8, 2(%edi)
    movw $0x8e00, 4(%edi)
    movw $(BASE >> 16), 6(%edi)
    add $8, %edi
    loop 1b
    lidt BASE + idt32_ptr
    xor %ebx, %ebx
    mov $1000, %ecx
2:  int $0x20
    loop 2b
    cmp $1000, %ebx
    jne bad
    # memory: 64 KiB from 0x10000 written and read back
    mov $0x10000, %edi
    mov $0x4000, %ecx
3:  mov %edi, (%edi)
    add $4, %edi
    loop 3b
    mov $0x10000, %esi
    mov $0x4000, %ecx
4:  cmp %esi, (%esi)
    jne bad
    add $4, %esi
    loop 4b
    # page tables at 0x2000 ... 0x4fff: the first GiB, 2 MiB pages
    mov $0x2000, %edi
    xor %eax, %eax
    mov $0xc00, %ecx
    rep stosl
    movl $0x3003, 0x2000
    movl $0x4003, 0x3000
    mov $0x4000, %edi
    mov $0x83, %eax
    mov $512, %ecx
5:  mov %eax, (%edi)
    add $8, %edi
    add $0x200000, %eax
    loop 5b
    mov %cr4, %eax
    or $0x20, %eax
    mov %eax, %cr4
    mov $0x2000, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx
    rdmsr
    or $0x100, %eax
    wrmsr
    mov %cr0, %eax
    or $0x80000000, %eax
    mov %eax, %cr0
    ljmp $24, $(BASE + lm)
back32:
    inc %ebx
    iret
bad:
    hlt
    jmp bad

.code64
lm:
    mov $16, %eax
    mov %eax, %ss
    mov $0x7000, %esp
    # a 64-bit IDT at 0x1000
    mov $0x1000, %edi
    mov $(BASE + back64), %eax
    mov $64, %ecx
6:  movw %ax, (%rdi)
    movw $24, 2(%rdi)
    movw $0x8e00, 4(%rdi)
    movw $(BASE >> 16), 6(%rdi)
    movq $0, 8(%rdi)
    add $16, %rdi
    loop 6b
    mov $(BASE + idt64_ptr), %eax
    lidt (%rax)
    xor %ebx, %ebx
    mov $1000, %ecx
7:  int $0x20
    loop 7b
    cmp $1000, %ebx
    jne 8f
    mov $0x10, %al
    out %al, $0xf4
8:  hlt
    jmp 8b
back64:
    inc %ebx
    iretq

.balign 8
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff # 8: 32-bit code
    .quad 0x00cf93000000ffff # 16: data
    .quad 0x00af9b000000ffff # 24: 64-bit code
gdt_ptr:
    .word gdt_ptr - gdt - 1
    .long BASE + gdt
idt32_ptr:
    .word 64 * 8 - 1
    .long 0x1000
idt64_ptr:
    .word 64 * 16 - 1
    .quad 0x1000
