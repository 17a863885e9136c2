/* instance_types.h — which instance types a host offers, from its processor's generation.
 * Not here: whether there is room for one (awsgw), the API's fields of a type.
 * Threads:  constant tables.
 * Memory:   borrowed static strings; lists in the arena given.
 * Errors:   none: an unknown processor offers the burstable and portable types only. */
#pragma once
#include "base/arena.h"
#include "model/node.h"

struct cpu_id {
    const char *arch;           /* "x86_64" or "arm64" */
    const char *vendor;         /* "GenuineIntel", "AuthenticAMD"; arm64: "" */
    unsigned family, model;     /* x86, as CPUID shows them (extended parts added) */
    unsigned implementer, part; /* arm64, MIDR */
};

/* Reads the text of /proc/cpuinfo: first processor, and its model name (borrowed; "" when there
 * is none). */
void cpu_id_parse(struct str cpuinfo, const char *arch, struct cpu_id *ret,
                  struct str *ret_model_name);

/* The generation digit and letter: "6i", "7a", "6g"; "" = unknown. */
const char *cpu_generation(const struct cpu_id *c);

/* All types that a host with these vCPUs and this memory can run one of. 'burstable_vcpus' is
 * the (overcommitted) number for t types. Both makers' names of an x86 generation are offered,
 * so that mixed clusters can run either. */
void instance_types_for(struct arena *a, const struct cpu_id *c, uint64_t n_vcpus,
                        uint64_t memory_mib, struct instance_type_list *ret);
