#include "model/obj.h"

#include "model/instance.h"
#include "model/keys.h"
#include "model/network.h"
#include "model/node.h"
#include "model/volume.h"

#include <errno.h>
#include <stdalign.h>

#define RECORD_ARENA_MAX (4u << 20) /* a value is at most 1 MiB of JSON */

struct held {
    struct arena *arena;
    alignas(max_align_t) char rec[];
};

struct kind {
    const char *root, *kind;
    const struct rec_desc *desc;
};

static const struct kind kinds[] = {
    {"spec", "instance", &instance_desc},
    {"status", "instance", &instance_status_desc},
    {"spec", "image", &image_desc},
    {"status", "image", &image_status_desc},
    {"spec", "keypair", &keypair_desc},
    {"spec", "volume", &volume_desc},
    {"status", "volume", &volume_status_desc},
    {"status", "attachment", &attachment_status_desc},
    {"spec", "snapshot", &snapshot_desc},
    {"spec", "volmod", &volume_mod_desc},
    {"spec", "ebsdefaults", &ebs_defaults_desc},
    {"status", "snapshot", &snapshot_status_desc},
    {"status", "volmod", &volume_mod_status_desc},
    {"spec", "vpc", &vpc_desc},
    {"spec", "subnet", &subnet_desc},
    {"spec", "igw", &igw_desc},
    {"spec", "rtb", &rtb_desc},
    {"spec", "acl", &acl_desc},
    {"spec", "sg", &sg_desc},
    {"spec", "eni", &eni_desc},
    {"status", "eni", &eni_status_desc},
    {"spec", "tags", &tags_desc},
};

const struct rec_desc *model_desc(struct str key)
{
    struct str rest = key, root = STR_NONE, kind = STR_NONE, third = STR_NONE;
    if (!str_next(&rest, '/', &root) || !str_next(&rest, '/', &kind)) {
        return NULL;
    }
    if (str_eqc(root, "node") && str_next(&rest, '/', &third)) {
        return str_eqc(third, "facts") ? &node_facts_desc : &node_service_desc;
    }
    if (str_eqc(root, "claim") && str_eqc(kind, "capacity")) {
        return &node_capacity_desc;
    }
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (str_eqc(root, kinds[i].root) && str_eqc(kind, kinds[i].kind)) {
            return kinds[i].desc;
        }
    }
    return NULL;
}

void *model_parse(struct str key, struct str value, struct err *err)
{
    const struct rec_desc *d = model_desc(key);
    if (!d) {
        return NULL;
    }
    struct arena *a = arena_new(RECORD_ARENA_MAX);
    struct held *h = arena_alloc(a, sizeof(*h) + d->size);
    if (!h || rec_load(d, a, value, h->rec, err) < 0) {
        arena_free(a);
        return NULL;
    }
    h->arena = a;
    return h->rec;
}

void model_free(struct str key, void *obj)
{
    if (obj) {
        arena_free(CONTAINER_OF(obj, struct held, rec)->arena);
    }
}
