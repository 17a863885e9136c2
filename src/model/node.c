#include "model/node.h"

static const struct rec_field instance_type_fields[] = {
    REC_FIELD(struct instance_type, REC_STR, name),
    REC_FIELD(struct instance_type, REC_U64, n_vcpus),
    REC_FIELD(struct instance_type, REC_U64, memory_mib),
    REC_FIELD(struct instance_type, REC_BOOL, is_burstable),
};
static REC_DESC(instance_type_desc, struct instance_type, "instance type", 1,
                instance_type_fields);

static const struct rec_field node_facts_fields[] = {
    REC_FIELD(struct node_facts, REC_STR, name),
    REC_FIELD(struct node_facts, REC_STR, ip),
    REC_FIELD(struct node_facts, REC_STR, region),
    REC_FIELD(struct node_facts, REC_STR, az),
    REC_FIELD(struct node_facts, REC_STR, az_id),
    REC_FIELD(struct node_facts, REC_STR, arch),
    REC_FIELD(struct node_facts, REC_STR, cpu_vendor),
    REC_FIELD(struct node_facts, REC_STR, cpu_model),
    REC_FIELD(struct node_facts, REC_U64, n_cpus),
    REC_FIELD(struct node_facts, REC_U64, memory_mib),
    REC_FIELD(struct node_facts, REC_U64, usable_vcpus),
    REC_FIELD(struct node_facts, REC_U64, usable_memory_mib),
    REC_FIELD(struct node_facts, REC_STR, accel),
    REC_FIELD(struct node_facts, REC_STR, accel_reason),
    REC_FIELD(struct node_facts, REC_STR, boot_id),
    REC_FIELD_SUB(struct node_facts, REC_OBJ_LIST, types, &instance_type_desc),
    REC_FIELD(struct node_facts, REC_U64, changed_ns),
};
REC_DESC(node_facts_desc, struct node_facts, "node facts", 1, node_facts_fields);

static const struct rec_field node_service_fields[] = {
    REC_FIELD(struct node_service, REC_STR, node),
    REC_FIELD(struct node_service, REC_STR, service),
    REC_FIELD(struct node_service, REC_STR, version),
    REC_FIELD(struct node_service, REC_STR, ip),
    REC_FIELD(struct node_service, REC_STR, region),
    REC_FIELD(struct node_service, REC_STR, az),
    REC_FIELD(struct node_service, REC_U64, pid),
    REC_FIELD(struct node_service, REC_U64, started_ns),
};
REC_DESC(node_service_desc, struct node_service, "node service", 1, node_service_fields);

static const struct rec_field node_capacity_fields[] = {
    REC_FIELD(struct node_capacity, REC_U64, used_cpu_percent),
    REC_FIELD(struct node_capacity, REC_U64, used_memory_mib),
};
REC_DESC(node_capacity_desc, struct node_capacity, "node capacity", 1, node_capacity_fields);

uint64_t node_cpu_percent(uint64_t n_vcpus, bool is_burstable, uint64_t overcommit)
{
    return n_vcpus * 100 / (is_burstable ? MAX(overcommit, (uint64_t)1) : 1);
}
