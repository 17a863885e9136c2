/* Instance types: what this host can run (node_facts, by compute), as EC2 describes types. */
#include "awsgw/ops.h"

#include "awsgw/alloc.h"
#include "awsgw/describe.h"
#include "awsgw/inst.h"
#include "awsgw/region.h"

#include <errno.h>

/* EBS attachments that EC2 shows for virtualised types; the guest's root ports bound it further. */
#define MAX_DISKS 28

/* ---- DescribeInstanceTypes ---- */

static const char *const type_filters[] = {
    "auto-recovery-supported",
    "bare-metal",
    "burstable-performance-supported",
    "current-generation",
    "dedicated-hosts-supported",
    "ebs-info.ebs-optimized-support",
    "ebs-info.encryption-support",
    "ebs-info.nvme-support",
    "free-tier-eligible",
    "hibernation-supported",
    "hypervisor",
    "instance-storage-supported",
    "instance-type",
    "memory-info.size-in-mib",
    "network-info.ena-support",
    "network-info.efa-supported",
    "network-info.ipv6-supported",
    "network-info.maximum-network-interfaces",
    "processor-info.supported-architecture",
    "supported-boot-mode",
    "supported-root-device-type",
    "supported-usage-class",
    "supported-virtualization-type",
    "vcpu-info.default-cores",
    "vcpu-info.default-threads-per-core",
    "vcpu-info.default-vcpus",
};

struct type_ctx {
    struct aws_call *call;
    const struct node_facts *facts;
};

static void type_values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    const struct instance_type *t = obj;
    const struct node_facts *f = ((struct type_ctx *)ctx)->facts;
    switch (name_idx) {
    case 0: aws_filter_add_bool(p, false); break;
    case 1: aws_filter_add_bool(p, false); break;
    case 2: aws_filter_add_bool(p, t->is_burstable); break;
    case 3: aws_filter_add_bool(p, true); break;
    case 4: aws_filter_add_bool(p, false); break;
    case 5: aws_filter_addc(p, "default"); break;
    case 6: aws_filter_addc(p, "unsupported"); break;
    case 7: aws_filter_addc(p, "unsupported"); break;
    case 8: aws_filter_add_bool(p, false); break;
    case 9: aws_filter_add_bool(p, false); break;
    case 10: aws_filter_addc(p, "nitro"); break;
    case 11: aws_filter_add_bool(p, false); break;
    case 12: aws_filter_add(p, t->name); break;
    case 13: aws_filter_add_i64(p, (int64_t)t->memory_mib); break;
    case 14: aws_filter_addc(p, "unsupported"); break;
    case 15: aws_filter_add_bool(p, false); break;
    case 16: aws_filter_add_bool(p, false); break;
    case 17: aws_filter_add_i64(p, 1); break;
    case 18: aws_filter_add(p, f->arch); break;
    case 19:
        aws_filter_addc(p, "legacy-bios");
        aws_filter_addc(p, "uefi");
        break;
    case 20: aws_filter_addc(p, "ebs"); break;
    case 21: aws_filter_addc(p, "on-demand"); break;
    case 22: aws_filter_addc(p, "hvm"); break;
    case 23: aws_filter_add_i64(p, (int64_t)t->n_vcpus); break;
    case 24: aws_filter_add_i64(p, 1); break;
    default: aws_filter_add_i64(p, (int64_t)t->n_vcpus); break;
    }
}

static void strings_out(struct arena *a, struct aws_str_list *l, const char *x, const char *y)
{
    AWS_LIST_MAKE(a, l, y ? 2 : 1);
    l->v[0] = str_c(x);
    if (y) {
        l->v[1] = str_c(y);
    }
}

static void network_out(struct arena *a, struct ec2_network_info **out)
{
    *out = arena_new_of(a, struct ec2_network_info);
    struct ec2_network_info *n = *out;
    n->network_performance = STR("Up to the host's link");
    n->maximum_network_interfaces = some_i64(1);
    n->maximum_network_cards = some_i64(1);
    n->default_network_card_index = some_i64(0);
    AWS_LIST_MAKE(a, &n->network_cards, 1);
    n->network_cards.v[0].network_card_index = some_i64(0);
    n->network_cards.v[0].network_performance = n->network_performance;
    n->network_cards.v[0].maximum_network_interfaces = some_i64(1);
    n->ipv4_addresses_per_interface = some_i64(1);
    n->ipv6_addresses_per_interface = some_i64(0);
    n->ipv6_supported = some_bool(false);
    n->ena_support = STR("unsupported");
    n->efa_supported = some_bool(false);
    n->encryption_in_transit_supported = some_bool(false);
}

static void type_out(struct aws_call *call, const struct node_facts *f,
                     const struct instance_type *t, struct ec2_instance_type_info *o)
{
    struct arena *a = call->arena;
    o->instance_type = t->name;
    o->current_generation = some_bool(true);
    o->free_tier_eligible = some_bool(false);
    strings_out(a, &o->supported_usage_classes, "on-demand", NULL);
    strings_out(a, &o->supported_root_device_types, "ebs", NULL);
    strings_out(a, &o->supported_virtualization_types, "hvm", NULL);
    o->bare_metal = some_bool(false);
    o->hypervisor = STR("nitro");
    o->processor_info = arena_new_of(a, struct ec2_processor_info);
    AWS_LIST_MAKE(a, &o->processor_info->supported_architectures, 1);
    o->processor_info->supported_architectures.v[0] = f->arch;
    o->processor_info->manufacturer = f->cpu_vendor;
    o->v_cpu_info = arena_new_of(a, struct ec2_v_cpu_info);
    o->v_cpu_info->default_v_cpus = some_i64((int64_t)t->n_vcpus);
    o->v_cpu_info->default_cores = some_i64((int64_t)t->n_vcpus);
    o->v_cpu_info->default_threads_per_core = some_i64(1);
    o->memory_info = arena_new_of(a, struct ec2_memory_info);
    o->memory_info->size_in_mi_b = some_i64((int64_t)t->memory_mib);
    o->instance_storage_supported = some_bool(false);
    o->ebs_info = arena_new_of(a, struct ec2_ebs_info);
    o->ebs_info->ebs_optimized_support = STR("default");
    o->ebs_info->encryption_support = STR("unsupported");
    o->ebs_info->nvme_support = STR("unsupported");
    o->ebs_info->maximum_ebs_attachments = some_i64(MAX_DISKS);
    o->ebs_info->attachment_limit_type = STR("shared");
    network_out(a, &o->network_info);
    o->placement_group_info = arena_new_of(a, struct ec2_placement_group_info);
    AWS_LIST_MAKE(a, &o->placement_group_info->supported_strategies, 0);
    o->hibernation_supported = some_bool(false);
    o->burstable_performance_supported = some_bool(t->is_burstable);
    o->dedicated_hosts_supported = some_bool(false);
    o->auto_recovery_supported = some_bool(false);
    strings_out(a, &o->supported_boot_modes, "legacy-bios", "uefi");
    o->nitro_enclaves_support = STR("unsupported");
    o->nitro_tpm_support = STR("unsupported");
}

static bool is_named(const struct aws_str_list *names, struct str name)
{
    for (size_t i = 0; i < names->n; i++) {
        if (str_eq(names->v[i], name)) {
            return true;
        }
    }
    return names->n == 0;
}

static int check_type_names(const struct node_facts *f, const struct aws_str_list *names,
                            struct err *err)
{
    for (size_t i = 0; i < names->n; i++) {
        if (!node_type_find(f, names->v[i])) {
            return fail(err, -EINVAL, "InvalidInstanceType",
                        "The following supplied instance types do not exist: [%.*s]",
                        STR_ARG(names->v[i]));
        }
    }
    return 0;
}

static int by_type_name(const void *a, const void *b)
{
    return str_cmp((*(const struct instance_type *const *)a)->name,
                   (*(const struct instance_type *const *)b)->name);
}

/* Types that match, by name, one page. */
static int select_types(struct type_ctx *ctx, const struct aws_filter *f,
                        const struct aws_page *page, const struct aws_str_list *names,
                        const struct instance_type ***ret, size_t *ret_n, struct str *ret_token)
{
    size_t total = ctx->facts ? ctx->facts->types.n : 0, n = 0;
    const struct instance_type **v = arena_xalloc(ctx->call->arena, (total + 1) * sizeof(*v));
    for (size_t i = 0; i < total; i++) {
        const struct instance_type *t = &ctx->facts->types.v[i];
        bool is_later = !str_is_set(page->after) || str_cmp(t->name, page->after) > 0;
        if (is_later && is_named(names, t->name) && aws_filter_match(f, ctx, t)) {
            v[n++] = t;
        }
    }
    qsort(v, n, sizeof(*v), by_type_name);
    if (n > page->max) {
        n = page->max;
        *ret_token = aws_page_token(ctx->call, v[n - 1]->name);
    }
    *ret = v;
    *ret_n = n;
    return 0;
}

int ec2_describe_instance_types(struct aws_call *call, const void *input, void *output,
                                struct err *err)
{
    const struct ec2_describe_instance_types_request *in = input;
    struct ec2_describe_instance_types_result *out = output;
    struct type_ctx ctx = {call, node_facts_get(gw_of(call), call->arena)};
    const struct aws_filter_spec fs = {
        .names = type_filters, .n_names = ARRAY_LEN(type_filters), .values = type_values};
    const struct aws_page_spec ps = {.min = 5,
                                     .max = 100,
                                     .dflt = 100,
                                     .ids_param = "InstanceTypes",
                                     .has_ids = in->instance_types.n > 0};
    struct aws_filter *f = NULL;
    struct aws_page page;
    const struct instance_type **v = NULL;
    size_t n = 0;
    int r = check_type_names(ctx.facts, &in->instance_types, err);
    if (r < 0 || (r = aws_filter_open(call->arena, &fs, &in->filters, &f, err)) < 0 ||
        (r = aws_page_begin(call, &ps, in->max_results, in->next_token, &page, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0 ||
        (r = select_types(&ctx, f, &page, &in->instance_types, &v, &n, &out->next_token)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->instance_types, n);
    for (size_t i = 0; i < n; i++) {
        type_out(call, ctx.facts, v[i], &out->instance_types.v[i]);
    }
    return 0;
}

/* ---- DescribeInstanceTypeOfferings ---- */

static const char *const offering_filters[] = {"location", "instance-type"};

struct offering_ctx {
    struct type_ctx t; /* first: select_types() passes it on */
    struct str location;
};

static void offering_values(void *ctx, const void *obj, size_t name_idx,
                            struct aws_filter_probe *p)
{
    aws_filter_add(p, name_idx == 0 ? ((struct offering_ctx *)ctx)->location
                                    : ((const struct instance_type *)obj)->name);
}

int ec2_describe_instance_type_offerings(struct aws_call *call, const void *input, void *output,
                                         struct err *err)
{
    const struct ec2_describe_instance_type_offerings_request *in = input;
    struct ec2_describe_instance_type_offerings_result *out = output;
    struct gw *gw = gw_of(call);
    struct str type = in->location_type.n > 0 ? in->location_type : STR("region");
    struct offering_ctx ctx = {{call, node_facts_get(gw, call->arena)}, region_name(gw)};
    if (str_eqc(type, "availability-zone")) {
        ctx.location = zone_name(gw);
    } else if (str_eqc(type, "availability-zone-id")) {
        ctx.location = zone_id(gw, call->arena);
    }
    const struct aws_filter_spec fs = {.names = offering_filters,
                                       .n_names = ARRAY_LEN(offering_filters),
                                       .values = offering_values};
    const struct aws_page_spec ps = {.min = 5, .max = 1000, .dflt = 1000};
    struct aws_filter *f = NULL;
    struct aws_page page;
    const struct instance_type **v = NULL;
    size_t n = 0;
    int r = aws_filter_open(call->arena, &fs, &in->filters, &f, err);
    if (r < 0 ||
        (r = aws_page_begin(call, &ps, in->max_results, in->next_token, &page, err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0 ||
        (r = select_types(&ctx.t, f, &page, &(struct aws_str_list){0}, &v, &n,
                          &out->next_token)) < 0) {
        return r;
    }
    bool is_nowhere = str_eqc(type, "outpost");
    AWS_LIST_MAKE(call->arena, &out->instance_type_offerings, is_nowhere ? 0 : n);
    for (size_t i = 0; i < out->instance_type_offerings.n; i++) {
        out->instance_type_offerings.v[i].instance_type = v[i]->name;
        out->instance_type_offerings.v[i].location_type = type;
        out->instance_type_offerings.v[i].location = ctx.location;
    }
    return 0;
}

/* ---- DescribeInstanceCreditSpecifications ---- */

static const char *const credit_filters[] = {"instance-id"};

static void credit_values(void *ctx, const void *obj, size_t name_idx,
                          struct aws_filter_probe *p)
{
    aws_filter_add(p, REC(instance, (const struct view_entry *)obj)->id);
}

static bool is_burstable_and_there(struct aws_call *call, const struct view_entry *e)
{
    return REC(instance, e)->is_burstable && inst_brief(call, e).state != INSTANCE_TERMINATED;
}

int ec2_describe_instance_credit_specifications(struct aws_call *call, const void *input,
                                                void *output, struct err *err)
{
    const struct ec2_describe_instance_credit_specifications_request *in = input;
    struct ec2_describe_instance_credit_specifications_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_INSTANCE,
        .rec_kind = "instance",
        .filters = credit_filters,
        .n_filters = ARRAY_LEN(credit_filters),
        .values = credit_values,
        .ids_param = "instancesSet",
        .page_min = 5,
        .page_max = 1000,
        .is_visible = in->instance_ids.n > 0 ? NULL : is_burstable_and_there,
    };
    const struct describe_in din = {&in->instance_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown;
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->instance_credit_specifications, shown.n);
    for (size_t i = 0; i < shown.n; i++) {
        out->instance_credit_specifications.v[i].instance_id = REC(instance, shown.v[i])->id;
        out->instance_credit_specifications.v[i].cpu_credits =
            REC(instance, shown.v[i])->is_burstable ? STR("unlimited") : STR("standard");
    }
    return 0;
}
