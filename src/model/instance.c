#include "model/instance.h"
#include <errno.h>

static const struct rec_field instance_fields[] = {
    REC_FIELD(struct instance, REC_STR, id),
    REC_FIELD(struct instance, REC_STR, account),
    REC_FIELD(struct instance, REC_U64, generation),
    REC_FIELD(struct instance, REC_STR, want),
    REC_FIELD(struct instance, REC_BOOL, is_forced),
    REC_FIELD(struct instance, REC_U64, n_reboots),
    REC_FIELD(struct instance, REC_STR, node),
    REC_FIELD(struct instance, REC_STR, reservation_id),
    REC_FIELD(struct instance, REC_STR, client_token),
    REC_FIELD(struct instance, REC_U64, launch_index),
    REC_FIELD(struct instance, REC_U64, launch_ns),
    REC_FIELD(struct instance, REC_U64, create_ns),
    REC_FIELD(struct instance, REC_STR, image_id),
    REC_FIELD(struct instance, REC_STR, instance_type),
    REC_FIELD(struct instance, REC_STR, arch),
    REC_FIELD(struct instance, REC_STR, boot_mode),
    REC_FIELD(struct instance, REC_U64, n_vcpus),
    REC_FIELD(struct instance, REC_U64, memory_mib),
    REC_FIELD(struct instance, REC_STR, key_name),
    REC_FIELD(struct instance, REC_STR, public_key),
    REC_FIELD(struct instance, REC_STR, user_data),
    REC_FIELD(struct instance, REC_STR, az),
    REC_FIELD(struct instance, REC_STR, vpc_id),
    REC_FIELD(struct instance, REC_STR, subnet_id),
    REC_FIELD(struct instance, REC_STR, root_device),
    REC_FIELD(struct instance, REC_BOOL, is_termination_protected),
    REC_FIELD(struct instance, REC_BOOL, is_stop_protected),
    REC_FIELD(struct instance, REC_BOOL, is_monitored),
    REC_FIELD(struct instance, REC_BOOL, is_ebs_optimized),
    REC_FIELD(struct instance, REC_BOOL, is_source_dest_checked),
    REC_FIELD(struct instance, REC_STR, shutdown_behavior),
    REC_FIELD(struct instance, REC_STR, http_tokens),
    REC_FIELD(struct instance, REC_STR, http_endpoint),
    REC_FIELD(struct instance, REC_U64, http_hop_limit),
    REC_FIELD(struct instance, REC_BOOL, is_tags_in_metadata),
    REC_FIELD(struct instance, REC_STR, transition_reason),
    REC_FIELD(struct instance, REC_STR, reason_code),
    REC_FIELD(struct instance, REC_STR, reason_message),
    REC_FIELD(struct instance, REC_U64, terminated_ns),
    REC_FIELD(struct instance, REC_BOOL, is_released),
    REC_FIELD(struct instance, REC_BOOL, is_holding_capacity),
    REC_FIELD(struct instance, REC_BOOL, is_burstable),
    REC_FIELD(struct instance, REC_BOOL, has_auto_public_ip),
    REC_FIELD(struct instance, REC_STR, imaging),
};
REC_DESC(instance_desc, struct instance, "instance", 1, instance_fields);

static const struct rec_field instance_status_fields[] = {
    REC_FIELD(struct instance_status, REC_STR, id),
    REC_FIELD(struct instance_status, REC_U64, generation),
    REC_FIELD(struct instance_status, REC_STR, state),
    REC_FIELD(struct instance_status, REC_STR, reason_code),
    REC_FIELD(struct instance_status, REC_STR, reason_message),
    REC_FIELD(struct instance_status, REC_U64, n_reboots),
    REC_FIELD(struct instance_status, REC_U64, n_starts),
    REC_FIELD(struct instance_status, REC_U64, n_crashes),
    REC_FIELD(struct instance_status, REC_U64, started_ns),
    REC_FIELD(struct instance_status, REC_U64, changed_ns),
    REC_FIELD(struct instance_status, REC_U64, pid),
    REC_FIELD(struct instance_status, REC_STR, accel),
    REC_FIELD(struct instance_status, REC_STR, instance_check),
    REC_FIELD(struct instance_status, REC_STR, system_check),
    REC_FIELD(struct instance_status, REC_U64, impaired_since_ns),
    REC_FIELD(struct instance_status, REC_STR, boot_id),
};
REC_DESC(instance_status_desc, struct instance_status, "instance status", 1,
         instance_status_fields);

static const struct rec_field image_device_fields[] = {
    REC_FIELD(struct image_device, REC_STR, device),
    REC_FIELD(struct image_device, REC_STR, snapshot_id),
    REC_FIELD(struct image_device, REC_STR, type),
    REC_FIELD(struct image_device, REC_STR, kms_key_id),
    REC_FIELD(struct image_device, REC_U64, size_gib),
    REC_FIELD(struct image_device, REC_U64, iops),
    REC_FIELD(struct image_device, REC_U64, throughput),
    REC_FIELD(struct image_device, REC_BOOL, is_encrypted),
    REC_FIELD(struct image_device, REC_BOOL, is_kept),
    REC_FIELD(struct image_device, REC_STR, virtual_name),
    REC_FIELD(struct image_device, REC_BOOL, is_none),
    REC_FIELD(struct image_device, REC_STR, volume_id),
};
REC_DESC(image_device_desc, struct image_device, "image device", 1, image_device_fields);

static const struct rec_field image_fields[] = {
    REC_FIELD(struct image, REC_STR, id),
    REC_FIELD(struct image, REC_STR, account),
    REC_FIELD(struct image, REC_STR, name),
    REC_FIELD(struct image, REC_STR, description),
    REC_FIELD(struct image, REC_STR, arch),
    REC_FIELD(struct image, REC_STR, boot_mode),
    REC_FIELD(struct image, REC_STR, platform),
    REC_FIELD(struct image, REC_STR, root_device),
    REC_FIELD(struct image, REC_STR, snapshot_id),
    REC_FIELD(struct image, REC_STR, sha256),
    REC_FIELD(struct image, REC_U64, size),
    REC_FIELD(struct image, REC_U64, create_ns),
    REC_FIELD(struct image, REC_BOOL, is_public),
    REC_FIELD(struct image, REC_STR, want),
    REC_FIELD(struct image, REC_STR, source),
    REC_FIELD(struct image, REC_STR, source_id),
    REC_FIELD(struct image, REC_STR_LIST, accounts),
    REC_FIELD(struct image, REC_STR, ena),
    REC_FIELD(struct image, REC_STR, sriov),
    REC_FIELD(struct image, REC_STR, tpm),
    REC_FIELD(struct image, REC_STR, imds),
    REC_FIELD(struct image, REC_STR, virt),
    REC_FIELD(struct image, REC_STR, deprecate_at),
    REC_FIELD(struct image, REC_BOOL, is_protected),
    REC_FIELD(struct image, REC_BOOL, is_disabled),
    REC_FIELD(struct image, REC_STR, phase),
    REC_FIELD(struct image, REC_STR, failure),
    REC_FIELD_SUB(struct image, REC_OBJ_LIST, devices, &image_device_desc),
};
REC_DESC(image_desc, struct image, "image", 1, image_fields);

static const struct rec_field image_status_fields[] = {
    REC_FIELD(struct image_status, REC_STR, id),
    REC_FIELD(struct image_status, REC_STR, state),
    REC_FIELD(struct image_status, REC_STR, reason),
    REC_FIELD(struct image_status, REC_STR, node),
};
REC_DESC(image_status_desc, struct image_status, "image status", 1, image_status_fields);

static const struct rec_field keypair_fields[] = {
    REC_FIELD(struct keypair, REC_STR, id),
    REC_FIELD(struct keypair, REC_STR, account),
    REC_FIELD(struct keypair, REC_STR, name),
    REC_FIELD(struct keypair, REC_STR, type),
    REC_FIELD(struct keypair, REC_STR, fingerprint),
    REC_FIELD(struct keypair, REC_STR, public_key),
    REC_FIELD(struct keypair, REC_U64, create_ns),
};
REC_DESC(keypair_desc, struct keypair, "keypair", 1, keypair_fields);

static const struct {
    enum instance_state state;
    const char *name;
} states[] = {
    {INSTANCE_PENDING, "pending"},
    {INSTANCE_RUNNING, "running"},
    {INSTANCE_SHUTTING_DOWN, "shutting-down"},
    {INSTANCE_TERMINATED, "terminated"},
    {INSTANCE_STOPPING, "stopping"},
    {INSTANCE_STOPPED, "stopped"},
};

const char *instance_state_name(enum instance_state s)
{
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        if (states[i].state == s) {
            return states[i].name;
        }
    }
    return "unknown";
}

int instance_state_parse(struct str name, enum instance_state *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        if (str_eqc(name, states[i].name)) {
            *ret = states[i].state;
            return 0;
        }
    }
    return -EINVAL;
}
