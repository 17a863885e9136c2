#include "vpcd/imds_tree.h"

#include "base/buf.h"
#include "base/time.h"
#include "codec/base64.h"
#include "codec/json.h"
#include "model/network.h"

#include <errno.h>
#include <stdlib.h>

#define LEAVES_MAX 2048u /* 50 tags, and some dozens for each interface */
#define VALUE_MAX  65536u

static void put_typed(struct imds_tree *t, struct str path, struct str value, const char *type)
{
    /* A fact that is not known is not listed; a value that did not fit into the arena is not
     * taken for one. */
    if (t->n == t->cap || !str_is_set(path) ||
        (!str_is_set(value) && !arena_alloc(t->arena, 1))) {
        t->is_full = true;
        return;
    }
    if (str_is_set(value)) {
        t->v[t->n++] = (struct imds_leaf){path, value, type};
    }
}

static void put(struct imds_tree *t, const char *path, struct str value)
{
    put_typed(t, arena_fmt(t->arena, "meta-data/%s", path), value, "text/plain");
}

/* Only when there is something to say: an empty leaf would be a lie. */
static void put_if(struct imds_tree *t, const char *path, struct str value)
{
    if (value.n) {
        put(t, path, value);
    }
}

static struct str lines(struct arena *a, struct str_list l)
{
    AUTO_BUF b;
    buf_init(&b, VALUE_MAX);
    for (size_t i = 0; i < l.n; i++) {
        buf_addc(&b, i ? "\n" : "");
        buf_add(&b, l.v[i]);
    }
    return arena_str_dup(a, buf_str(&b));
}

static void put_interface(struct imds_tree *t, const struct fact_vpc *v,
                          const struct fact_eni *e)
{
    struct arena *a = t->arena;
    struct str mac = e->mac;
#define MAC_LEAF(name, value)                                                                \
    put_typed(t, arena_fmt(a, "meta-data/network/interfaces/macs/%.*s/" name, STR_ARG(mac)), \
              value, "text/plain")
    MAC_LEAF("device-number", arena_fmt(a, "%llu", (unsigned long long)e->device_index));
    MAC_LEAF("interface-id", e->id);
    MAC_LEAF("local-hostname", e->private_dns);
    MAC_LEAF("local-ipv4s", e->ip);
    MAC_LEAF("mac", mac);
    MAC_LEAF("network-card", STR("0"));
    MAC_LEAF("owner-id", v->account);
    if (e->public_ip.n) {
        put_typed(t,
                  arena_fmt(a, "meta-data/network/interfaces/macs/%.*s/ipv4-associations/%.*s",
                            STR_ARG(mac), STR_ARG(e->public_ip)),
                  e->ip, "text/plain");
        MAC_LEAF("public-hostname", e->public_dns);
        MAC_LEAF("public-ipv4s", e->public_ip);
    }
    MAC_LEAF("security-group-ids", lines(a, e->sg_ids));
    MAC_LEAF("security-groups", lines(a, e->sg_names));
    MAC_LEAF("subnet-id", e->subnet_id);
    MAC_LEAF("subnet-ipv4-cidr-block", e->subnet_cidr);
    MAC_LEAF("vpc-id", v->id);
    MAC_LEAF("vpc-ipv4-cidr-block", v->cidr);
    MAC_LEAF("vpc-ipv4-cidr-blocks", v->cidr);
#undef MAC_LEAF
}

/* Keys that the metadata service can show as one path segment; the API refuses others when the
 * option is turned on. */
static bool is_tag_path(struct str key)
{
    for (size_t i = 0; i < key.n; i++) {
        char c = key.p[i];
        bool is_word =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_word && !strchr("+-=._:@,", c)) {
            return false;
        }
    }
    return key.n > 0 && !str_eqc(key, ".") && !str_eqc(key, "..") && !str_eqc(key, "_index");
}

static void put_instance(struct imds_tree *t, const struct fact_vpc *v,
                         const struct fact_eni *e)
{
    const struct fact_inst *i = &e->inst;
    struct arena *a = t->arena;
    put_if(t, "ami-id", i->image_id);
    put(t, "ami-launch-index", arena_fmt(a, "%llu", (unsigned long long)i->launch_index));
    put(t, "ami-manifest-path", STR("(unknown)"));
    put_if(t, "block-device-mapping/ami", i->root_device);
    put_if(t, "block-device-mapping/root", i->root_device);
    put(t, "events/maintenance/history", STR("[]"));
    put(t, "events/maintenance/scheduled", STR("[]"));
    put(t, "hostname", e->private_dns);
    put(t, "instance-action", STR("none"));
    put(t, "instance-id", i->id);
    put(t, "instance-life-cycle", STR("on-demand"));
    put_if(t, "instance-type", i->instance_type);
    put(t, "local-hostname", e->private_dns);
    put(t, "local-ipv4", e->ip);
    put(t, "mac", e->mac);
    put_if(t, "placement/availability-zone", i->az);
    put_if(t, "placement/availability-zone-id", i->az_id);
    put_if(t, "placement/region", v->region);
    put(t, "profile", STR("default-hvm"));
    if (e->public_ip.n) {
        put(t, "public-hostname", e->public_dns);
        put(t, "public-ipv4", e->public_ip);
    }
    if (i->public_key.n) {
        put(t, "public-keys/0/openssh-key", i->public_key);
    }
    put_if(t, "reservation-id", i->reservation_id);
    put(t, "security-groups", lines(a, e->sg_names));
    put(t, "services/domain", STR("amazonaws.com"));
    put(t, "services/partition", STR("aws"));
    put(t, "system", STR("nitro"));
    for (size_t k = 0; i->is_tags_in_metadata && k < i->tags.n; k++) {
        if (is_tag_path(i->tags.v[k].key)) {
            put_typed(t,
                      arena_fmt(a, "meta-data/tags/instance/%.*s", STR_ARG(i->tags.v[k].key)),
                      i->tags.v[k].value.p ? i->tags.v[k].value : STR(""), "text/plain");
        }
    }
}

static struct str identity_document(struct arena *a, const struct fact_vpc *v,
                                    const struct fact_eni *e)
{
    const struct fact_inst *i = &e->inst;
    char when[TIME_ISO_SIZE];
    const struct {
        const char *name;
        struct str value; /* STR_NONE: null */
    } members[] = {
        {"accountId", v->account},
        {"architecture", i->arch},
        {"availabilityZone", i->az},
        {"billingProducts", STR_NONE},
        {"devpayProductCodes", STR_NONE},
        {"marketplaceProductCodes", STR_NONE},
        {"imageId", i->image_id},
        {"instanceId", i->id},
        {"instanceType", i->instance_type},
        {"kernelId", STR_NONE},
        {"pendingTime", str_c(time_iso_s(i->launch_ns, when))},
        {"privateIp", e->ip},
        {"ramdiskId", STR_NONE},
        {"region", v->region},
        {"version", STR("2017-09-30")},
    };
    AUTO_BUF b;
    buf_init(&b, VALUE_MAX);
    buf_addc(&b, "{");
    for (size_t k = 0; k < ARRAY_LEN(members); k++) {
        struct jw w;
        buf_fmt(&b, "%s\n  \"%s\" : ", k ? "," : "", members[k].name);
        jw_init(&w, &b);
        if (members[k].value.p) {
            jw_str(&w, NULL, members[k].value);
        } else {
            jw_null(&w, NULL);
        }
    }
    buf_addc(&b, "\n}");
    return arena_str_dup(a, buf_str(&b));
}

static int by_path(const void *a, const void *b)
{
    return str_cmp(((const struct imds_leaf *)a)->path, ((const struct imds_leaf *)b)->path);
}

int imds_tree_build(const struct facts *f, const struct fact_eni *eni, struct arena *a,
                    struct imds_tree *t)
{
    const struct fact_vpc *v = facts_vpc(f);
    *t = (struct imds_tree){.arena = a, .cap = LEAVES_MAX};
    t->key_name = eni->inst.key_name.n ? eni->inst.key_name : STR("key");
    t->v = arena_array(a, LEAVES_MAX, sizeof(*t->v));
    if (!t->v) {
        return -ENOMEM;
    }
    /* What an instance is called by is its first interface, whichever it asks through. */
    const struct fact_eni *first = facts_next_eni_of(f, eni->inst.id, NULL);
    put_instance(t, v, first ? first : eni);
    for (const struct fact_eni *e = first; e; e = facts_next_eni_of(f, eni->inst.id, e)) {
        put_interface(t, v, e);
    }
    put_typed(t, STR("dynamic/instance-identity/document"),
              identity_document(a, v, first ? first : eni), "text/plain");
    if (eni->inst.user_data.n) {
        AUTO_BUF b;
        buf_init(&b, VALUE_MAX);
        if (!base64_decode_lax(eni->inst.user_data, &b)) {
            put_typed(t, STR("user-data"), arena_str_dup(a, buf_str(&b)),
                      "application/octet-stream");
        }
    }
    if (t->is_full) {
        return -ENOMEM;
    }
    qsort(t->v, t->n, sizeof(*t->v), by_path);
    return 0;
}

const struct imds_leaf *imds_tree_leaf(const struct imds_tree *t, struct str path)
{
    const struct imds_leaf key = {.path = path};
    return bsearch(&key, t->v, t->n, sizeof(*t->v), by_path);
}

struct str imds_tree_list(const struct imds_tree *t, struct str path)
{
    AUTO_BUF b;
    buf_init(&b, VALUE_MAX);
    bool is_keys = str_eqc(path, "meta-data/public-keys");
    struct str last = STR_NONE;
    for (size_t i = 0; i < t->n; i++) {
        struct str p = t->v[i].path;
        if (path.n && (!str_has_prefix(p, path) || p.n <= path.n || p.p[path.n] != '/')) {
            continue;
        }
        struct str rest = path.n ? str_skip(p, path.n + 1) : p;
        struct str name = str_cut(rest, '/');
        if (str_eq(name, last)) {
            continue;
        }
        buf_addc(&b, last.p ? "\n" : "");
        buf_add(&b, name);
        if (is_keys) {
            buf_addc(&b, "=");
            buf_add(&b, t->key_name);
        } else if (name.n < rest.n && path.n) {
            buf_add_char(&b, '/');
        }
        last = name;
    }
    return last.p ? arena_str_dup(t->arena, buf_str(&b)) : STR_NONE;
}
