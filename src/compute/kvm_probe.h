/* kvm_probe.h — whether KVM runs guests here, found out by running one.
 * /dev/kvm may open, and then hang or end every guest (seen on nested hosts).
 * Not here: what to do without (TCG: host.c).
 * Threads:  blocks for at most the time limit; start of the service.
 * Memory:   none kept. <run_dir>/kvm-probe.json remembers the answer for this boot.
 * Errors:   none: "no" always has a reason. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kvm_probe_opts {
    const char *run_dir, *boot_id, *arch;
    const char *qemu_path; /* NULL = by name */
    const char *device;    /* "/dev/kvm" */
    uint64_t uid;          /* a guest's user; 0 = do not change */
    uint64_t timeout_ns;
};

struct kvm_answer {
    bool is_usable;
    gid_t gid;        /* group that a guest's user needs for the device; 0 = none */
    char reason[200]; /* for people: why, or why not */
};

void kvm_probe(const struct kvm_probe_opts *o, struct kvm_answer *ret);

/* The last 64 KiB below 4 GiB of the probe guest (probe_rom.S): it ends QEMU with status
 * KVM_PROBE_EXIT. */
#define KVM_PROBE_ROM_SIZE 65536u
#define KVM_PROBE_EXIT     33
void kvm_probe_rom(uint8_t rom[KVM_PROBE_ROM_SIZE]);
