/* node.h — hosts and their services as the store holds them.
 * Not here: how facts are found (compute/).
 * Who writes: node/<node>/facts compute; node/<node>/<service> each service, under its lease;
 *             claim/capacity/<node> awsgw.
 * Threads, memory, errors: see codec/rec.h. */
#pragma once
#include "codec/rec.h"

struct instance_type { /* one that this host can run */
    struct rec_head head;
    struct str name;
    uint64_t n_vcpus, memory_mib;
    bool is_burstable;
};
struct instance_type_list {
    struct instance_type *v;
    size_t n;
};

struct node_facts { /* node/<node>/facts */
    struct rec_head head;
    struct str name, ip, region, az, az_id, arch;
    struct str cpu_vendor, cpu_model;
    uint64_t n_cpus, memory_mib;
    uint64_t usable_vcpus, usable_memory_mib; /* what admission may give out */
    struct str accel, accel_reason;           /* "kvm" or "tcg", and why */
    struct str boot_id;
    struct instance_type_list types;
    uint64_t changed_ns;
};
extern const struct rec_desc node_facts_desc;

struct node_service { /* node/<node>/<service>, under a lease */
    struct rec_head head;
    struct str node, service, version, ip, region, az;
    uint64_t pid, started_ns;
};
extern const struct rec_desc node_service_desc;

/* claim/capacity/<node>: changed in the transaction that starts or ends an instance */
struct node_capacity {
    struct rec_head head;
    uint64_t used_cpu_percent; /* 100 = one CPU of the host: node_cpu_percent() */
    uint64_t used_memory_mib;
};
extern const struct rec_desc node_capacity_desc;

/* What vCPUs count for in admission, in percent of a CPU: burstable ones share a CPU among
 * 'overcommit' (docs/guides). */
uint64_t node_cpu_percent(uint64_t n_vcpus, bool is_burstable, uint64_t overcommit);
