/* Regions, zones, account attributes: one region with one zone. */
#include "awsgw/ops.h"

#include "aws/filter.h"
#include "awsgw/defaults.h"
#include "awsgw/region.h"
#include "model/network.h"

#include <errno.h>

/* ---- DescribeRegions ---- */

static const char *const region_filters[] = {"endpoint", "opt-in-status", "region-name"};

static struct str region_endpoint(struct aws_call *call)
{
    return arena_fmt(call->arena, "ec2.%s.amazonaws.com", gw_of(call)->cfg->region);
}

static void region_values(void *ctx, const void *obj, size_t name_idx,
                          struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    switch (name_idx) {
    case 0: aws_filter_add(p, region_endpoint(call)); break;
    case 1: aws_filter_addc(p, "opt-in-not-required"); break;
    default: aws_filter_add(p, region_name(gw_of(call))); break;
    }
}

int ec2_describe_regions(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    const struct ec2_describe_regions_request *in = input;
    struct ec2_describe_regions_result *out = output;
    const struct aws_filter_spec fs = {
        .names = region_filters, .n_names = ARRAY_LEN(region_filters), .values = region_values};
    struct aws_filter *f = NULL;
    int r = aws_filter_open(call->arena, &fs, &in->filters, &f, err);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < in->region_names.n; i++) {
        if (!str_eq(in->region_names.v[i], region_name(gw_of(call)))) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "Invalid region names provided: [%.*s]",
                        STR_ARG(in->region_names.v[i]));
        }
    }
    if ((r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    bool is_shown = aws_filter_match(f, call, call);
    AWS_LIST_MAKE(call->arena, &out->regions, is_shown ? 1 : 0);
    if (is_shown) {
        out->regions.v[0].region_name = region_name(gw_of(call));
        out->regions.v[0].endpoint = region_endpoint(call);
        out->regions.v[0].opt_in_status = STR("opt-in-not-required");
    }
    return 0;
}

/* ---- DescribeAvailabilityZones ---- */

static const char *const zone_filters[] = {
    "group-name",     "group-long-name",  "message",     "opt-in-status",
    "parent-zone-id", "parent-zone-name", "region-name", "state",
    "zone-id",        "zone-name",        "zone-type"};

static void zone_values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct gw *gw = gw_of(call);
    switch (name_idx) {
    case 0: aws_filter_add(p, arena_fmt(call->arena, "%s-zg-1", gw->cfg->region)); break;
    case 3: aws_filter_addc(p, "opt-in-not-required"); break;
    case 6: aws_filter_add(p, region_name(gw)); break;
    case 7: aws_filter_addc(p, "available"); break;
    case 8: aws_filter_add(p, zone_id(gw, call->arena)); break;
    case 9: aws_filter_add(p, zone_name(gw)); break;
    case 10: aws_filter_addc(p, "availability-zone"); break;
    default: break;
    }
}

static int check_zone_names(const struct aws_str_list *given, struct str ours, const char *what,
                            struct err *err)
{
    for (size_t i = 0; i < given->n; i++) {
        if (!str_eq(given->v[i], ours)) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "Invalid availability zone%s: [%.*s]", what, STR_ARG(given->v[i]));
        }
    }
    return 0;
}

int ec2_describe_availability_zones(struct aws_call *call, const void *input, void *output,
                                    struct err *err)
{
    const struct ec2_describe_availability_zones_request *in = input;
    struct ec2_describe_availability_zones_result *out = output;
    struct gw *gw = gw_of(call);
    const struct aws_filter_spec fs = {
        .names = zone_filters, .n_names = ARRAY_LEN(zone_filters), .values = zone_values};
    struct aws_filter *f = NULL;
    int r = aws_filter_open(call->arena, &fs, &in->filters, &f, err);
    if (r < 0 || (r = check_zone_names(&in->zone_names, zone_name(gw), "", err)) < 0 ||
        (r = check_zone_names(&in->zone_ids, zone_id(gw, call->arena), "-id", err)) < 0 ||
        (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    bool is_shown = aws_filter_match(f, call, call);
    AWS_LIST_MAKE(call->arena, &out->availability_zones, is_shown ? 1 : 0);
    if (!is_shown) {
        return 0;
    }
    struct ec2_availability_zone *z = &out->availability_zones.v[0];
    z->opt_in_status = STR("opt-in-not-required");
    AWS_LIST_MAKE(call->arena, &z->messages, 0);
    z->region_name = region_name(gw);
    z->zone_name = zone_name(gw);
    z->zone_id = zone_id(gw, call->arena);
    z->group_name = arena_fmt(call->arena, "%s-zg-1", gw->cfg->region);
    z->network_border_group = region_name(gw);
    z->zone_type = STR("availability-zone");
    z->state = STR("available");
    return 0;
}

/* ---- DescribeAccountAttributes ---- */

int ec2_describe_account_attributes(struct aws_call *call, const void *input, void *output,
                                    struct err *err)
{
    const struct ec2_describe_account_attributes_request *in = input;
    struct ec2_describe_account_attributes_result *out = output;
    struct account_defaults d;
    bool has_default = defaults_find(gw_of(call), call->arena, call->account, &d);
    const struct {
        const char *name;
        struct str value;
    } rows[] = {
        {"supported-platforms", STR("VPC")},
        {"default-vpc", has_default ? d.vpc->id : STR("none")},
        {"max-instances", STR("200")},
        {"vpc-max-security-groups-per-interface", STR("5")},
        {"max-elastic-ips", STR("5")},
        {"vpc-max-elastic-ips", STR("5")},
    };
    int r = aws_dry_run(call, err);
    if (r < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->account_attributes, ARRAY_LEN(rows));
    out->account_attributes.n = 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bool is_wanted = in->attribute_names.n == 0;
        for (size_t k = 0; k < in->attribute_names.n; k++) {
            is_wanted = is_wanted || str_eqc(in->attribute_names.v[k], rows[i].name);
        }
        if (is_wanted) {
            struct ec2_account_attribute *a =
                &out->account_attributes.v[out->account_attributes.n++];
            a->attribute_name = str_c(rows[i].name);
            AWS_LIST_MAKE(call->arena, &a->attribute_values, 1);
            a->attribute_values.v[0].attribute_value = rows[i].value;
        }
    }
    return 0;
}
