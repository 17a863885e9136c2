/* host.h — what this host has and may give to guests: node/<node>/facts.
 * Not here: writing the record (store.c).
 * Threads:  made at start, then constant.
 * Memory:   everything in the arena given.
 * Errors:   -errno with *err when /proc cannot be read. */
#pragma once
#include "base/arena.h"
#include "compute/kvm_probe.h"
#include "model/config.h"
#include "model/node.h"

struct host {
    struct node_facts facts; /* ready to be saved */
    struct kvm_answer kvm;
    bool is_kvm;
    const char *boot_id, *arch; /* "x86_64", "arm64" */
    const char *firmware;       /* file of the UEFI code; NULL = not installed */
};

/* 'accel' "auto" probes; "tcg" does not. 'qemu_path' NULL = by name. */
MUST_CHECK int host_look(struct arena *a, const struct config *cfg, const char *accel,
                         const char *qemu_path, struct host *ret, struct err *err);

/* Exposed for tests. What is kept for the host itself: of its CPUs and of its memory. */
uint64_t host_usable_vcpus(uint64_t n_cpus);
uint64_t host_usable_memory_mib(uint64_t memory_mib);
MUST_CHECK int host_meminfo_mib(struct str meminfo, uint64_t *ret);
