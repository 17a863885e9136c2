/* DescribeInstanceImageMetadata: what instances were launched from, also when that is gone. */
#include "awsgw/ops.h"

#include "awsgw/image.h"
#include "awsgw/inst.h"
#include "awsgw/region.h"
#include "awsgw/tagset.h"

static const char *const filters[] = {
    "availability-zone",   "instance-id",   "image-allowed",
    "instance-state-name", "instance-type", "launch-time",
    "owner-alias",         "owner-id",      "zone-id",
};

static const struct image *image_of(struct aws_call *call, const struct instance *i)
{
    struct entries all = store_list(gw_of(call), call->arena, "image", STR_NONE);
    for (size_t k = 0; k < all.n; k++) {
        if (str_eq(REC(image, all.v[k])->id, i->image_id)) {
            return REC(image, all.v[k]);
        }
    }
    return NULL;
}

static void values(void *ctx, const void *obj, size_t name_idx, struct aws_filter_probe *p)
{
    struct aws_call *call = ctx;
    struct inst in = inst_brief(call, obj);
    switch (name_idx) {
    case 0: aws_filter_add(p, in.spec->az); break;
    case 1: aws_filter_add(p, in.spec->id); break;
    case 2: aws_filter_add_bool(p, true); break;
    case 3: aws_filter_addc(p, instance_state_name(in.state)); break;
    case 4: aws_filter_add(p, in.spec->instance_type); break;
    case 5: aws_filter_add_time(p, in.spec->launch_ns); break;
    case 6: break; /* nobody here is on AWS's list */
    case 7: aws_filter_add(p, in.spec->account); break;
    default: aws_filter_add(p, zone_id(gw_of(call), call->arena)); break;
    }
}

static void image_meta_out(struct aws_call *call, const struct instance *i,
                           struct ec2_image_metadata *o)
{
    char iso[TIME_ISO_SIZE];
    const struct image *img = image_of(call, i);
    o->image_id = i->image_id;
    o->image_allowed = some_bool(true);
    if (!img) {
        o->state = STR("deregistered");
        return;
    }
    o->name = img->name;
    o->owner_id = img->account;
    o->state = image_state(gw_of(call), call->arena, img, NULL);
    o->creation_date = arena_str_dup(call->arena, str_c(time_iso_ms(img->create_ns, iso)));
    o->deprecation_time = img->deprecate_at.n > 0 ? img->deprecate_at : STR_NONE;
    o->is_public = some_bool(img->is_public);
}

int ec2_describe_instance_image_metadata(struct aws_call *call, const void *input, void *output,
                                         struct err *err)
{
    const struct ec2_describe_instance_image_metadata_request *in = input;
    struct ec2_describe_instance_image_metadata_result *out = output;
    const struct describe_spec spec = {
        .kind = AWS_ID_INSTANCE,
        .rec_kind = "instance",
        .filters = filters,
        .n_filters = ARRAY_LEN(filters),
        .values = values,
        .page_min = 1,
        .page_max = 1000,
        .page_dflt = 1000,
    };
    const struct describe_in din = {&in->instance_ids, &in->filters, in->max_results,
                                    in->next_token};
    struct entries shown = {0};
    int r = describe_run(call, &spec, &din, &shown, &out->next_token, err);
    if (r < 0 || (r = aws_dry_run(call, err)) < 0) {
        return r;
    }
    AWS_LIST_MAKE(call->arena, &out->instance_image_metadata, shown.n);
    for (size_t k = 0; k < shown.n; k++) {
        struct inst i = inst_brief(call, shown.v[k]);
        struct ec2_instance_image_metadata *o = &out->instance_image_metadata.v[k];
        o->instance_id = i.spec->id;
        o->instance_type = i.spec->instance_type;
        o->launch_time = some_time(i.spec->launch_ns);
        o->availability_zone = i.spec->az;
        o->zone_id = zone_id(gw_of(call), call->arena);
        o->owner_id = i.spec->account;
        inst_state_out(call->arena, i.state, &o->state);
        tags_out(call->arena, tags_of(gw_of(call), call->arena, i.spec->account, i.spec->id),
                 &o->tags);
        o->image_metadata = arena_new_of(call->arena, struct ec2_image_metadata);
        image_meta_out(call, i.spec, o->image_metadata);
    }
    return 0;
}
