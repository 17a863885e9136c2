#include "awsgw/sgrule.h"

#include "aws/arn.h"
#include "awsgw/defaults.h"
#include "awsgw/tagset.h"
#include "base/num.h"

#include "model/keys.h"

#include <arpa/inet.h>
#include <errno.h>

struct str sg_use_key(struct arena *a, struct str vpc_id)
{
    return key_claim(a, "sguse", vpc_id, STR_NONE);
}

static const struct {
    const char *number, *name;
} protocols[] = {{"6", "tcp"}, {"17", "udp"}, {"1", "icmp"}, {"58", "icmpv6"}, {"-1", "-1"}};

/* "TCP", "6" -> "tcp"; other numbers stay. */
static int normal_protocol(struct str p, struct str *ret, struct err *err)
{
    if (!str_is_set(p)) {
        return fail(err, -EINVAL, "MissingParameter",
                    "The request must contain the parameter ipProtocol");
    }
    for (size_t i = 0; i < ARRAY_LEN(protocols); i++) {
        if (str_eqc(p, protocols[i].number) || str_ieqc(p, protocols[i].name)) {
            *ret = str_c(protocols[i].name);
            return 0;
        }
    }
    uint64_t n = 0;
    if (num_u64(p, 254, &n) < 0) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Invalid value '%.*s' for IP protocol. Unknown protocol.", STR_ARG(p));
    }
    *ret = p;
    return 0;
}

static int set_ports(struct sg_rule *r, struct opt_i64 from, struct opt_i64 to, struct err *err)
{
    r->port_from = r->port_to = -1;
    if (str_eqc(r->protocol, "tcp") || str_eqc(r->protocol, "udp")) {
        if (!from.is_set || !to.is_set) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "Invalid value for portRange. Must specify both from and to ports with "
                        "TCP/UDP.");
        }
        if (from.v < 0 || from.v > 65535 || to.v < 0 || to.v > 65535) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "Invalid value '%lld' for %s port. Must be from 0 to 65535.",
                        (long long)(from.v < 0 || from.v > 65535 ? from.v : to.v),
                        from.v < 0 || from.v > 65535 ? "from" : "to");
        }
        if (from.v > to.v) {
            return fail(
                err, -EINVAL, "InvalidParameterValue",
                "Invalid TCP/UDP port range: from port %lld is greater than to port %lld.",
                (long long)from.v, (long long)to.v);
        }
        r->port_from = from.v;
        r->port_to = to.v;
    } else if (str_eqc(r->protocol, "icmp") || str_eqc(r->protocol, "icmpv6")) {
        int64_t type = from.is_set ? from.v : -1, code = to.is_set ? to.v : -1;
        if (type < -1 || type > 255 || code < -1 || code > 255 || (type == -1 && code != -1)) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "ICMP type (%lld) and code (%lld) are not valid.", (long long)type,
                        (long long)code);
        }
        r->port_from = type;
        r->port_to = code;
    }
    return 0;
}

static int bad_cidr(struct str cidr, struct err *err)
{
    return fail(err, -EINVAL, "InvalidParameterValue", "CIDR block %.*s is malformed",
                STR_ARG(cidr));
}

/* Clears host bits, as EC2 does: 10.0.0.5/24 is stored as 10.0.0.0/24. */
static int normal_cidr4(struct arena *a, struct str cidr, struct str *ret, struct err *err)
{
    ptrdiff_t slash = str_find(cidr, '/', 0);
    uint32_t ip = 0;
    uint64_t len = 0;
    if (slash < 0 || ip4_parse(str_n(cidr.p, (size_t)slash), &ip) < 0 ||
        num_u64(str_skip(cidr, (size_t)slash + 1), 32, &len) < 0) {
        return bad_cidr(cidr, err);
    }
    uint32_t mask = len == 0 ? 0 : UINT32_MAX << (32 - len);
    *ret = arena_fmt(a, "%.*s/%u", STR_ARG(ip4_fmt(a, ip & mask)), (unsigned)len);
    return 0;
}

static int normal_cidr6(struct arena *a, struct str cidr, struct str *ret, struct err *err)
{
    char text[INET6_ADDRSTRLEN], out[INET6_ADDRSTRLEN];
    unsigned char ip[16];
    uint64_t len = 0;
    ptrdiff_t slash = str_find(cidr, '/', 0);
    if (slash <= 0 || (size_t)slash >= sizeof(text) ||
        num_u64(str_skip(cidr, (size_t)slash + 1), 128, &len) < 0) {
        return bad_cidr(cidr, err);
    }
    memcpy(text, cidr.p, (size_t)slash);
    text[slash] = '\0';
    if (inet_pton(AF_INET6, text, ip) != 1) {
        return bad_cidr(cidr, err);
    }
    for (size_t bit = len; bit < 128; bit++) {
        ip[bit / 8] = (unsigned char)(ip[bit / 8] & ~(0x80u >> (bit % 8)));
    }
    inet_ntop(AF_INET6, ip, out, sizeof(out));
    *ret = arena_fmt(a, "%s/%u", out, (unsigned)len);
    return 0;
}

static const struct view_entry *group_named(struct aws_call *call, const struct sg *g,
                                            struct str name, struct err *err)
{
    struct entries all = store_list(gw_of(call), call->arena, "sg", call->account);
    for (size_t i = 0; i < all.n; i++) {
        const struct sg *other = REC(sg, all.v[i]);
        if (str_eq(other->vpc_id, g->vpc_id) && str_eq(other->name, name)) {
            return all.v[i];
        }
    }
    fail(err, -ENOENT, "InvalidGroup.NotFound", "The security group '%.*s' does not exist",
         STR_ARG(name));
    return NULL;
}

static int set_group(struct aws_call *call, const struct sg *g, struct str id, struct str name,
                     struct str owner, struct sg_rule *r, struct err *err)
{
    if (owner.n > 0 && !str_eq(owner, call->account)) {
        return fail(err, -ENOENT, "InvalidGroup.NotFound",
                    "The security group '%.*s' does not exist", STR_ARG(id.n > 0 ? id : name));
    }
    const struct view_entry *e = id.n > 0     ? find_one(call, AWS_ID_SECURITY_GROUP, id, err)
                                 : name.n > 0 ? group_named(call, g, name, err)
                                              : NULL;
    if (!e) {
        return err->code != 0
                   ? err->code
                   : fail(err, -EINVAL, "MissingParameter",
                          "A group pair must contain the parameter groupId or groupName");
    }
    const struct sg *other = REC(sg, e);
    if (!str_eq(other->vpc_id, g->vpc_id)) {
        return fail(err, -EINVAL, "InvalidGroup.NotFound",
                    "You have specified two resources that belong to different networks: "
                    "'%.*s' and '%.*s'",
                    STR_ARG(g->id), STR_ARG(other->id));
    }
    r->group_id = other->id;
    r->group_account = call->account;
    return 0;
}

static bool is_description_ok(struct str d)
{
    static const char extra[] = ". _-:/()#,@[]+=&;{}!$*";
    for (size_t i = 0; i < d.n; i++) {
        char c = d.p[i];
        bool is_alnum =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_alnum && (c == '\0' || !strchr(extra, c))) {
            return false;
        }
    }
    return d.n <= 255;
}

static int push(struct sg_rule_list *out, size_t cap, const struct sg_rule *base,
                struct sg_rule peer, struct str description, struct err *err)
{
    if (!is_description_ok(description)) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Invalid rule description. Valid descriptions are strings less than 256 "
                    "characters from the following set:  "
                    "a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*");
    }
    if (out->n == cap) {
        return fail(err, -E2BIG, "RulesPerSecurityGroupLimitExceeded",
                    "The maximum number of rules per security group has been reached.");
    }
    struct sg_rule r = *base;
    r.cidr = peer.cidr;
    r.cidr6 = peer.cidr6;
    r.group_id = peer.group_id;
    r.group_account = peer.group_account;
    r.description = description;
    for (size_t i = 0; i < out->n; i++) {
        if (sgrule_eq(&out->v[i], &r)) {
            return fail(err, -EINVAL, "InvalidParameterValue",
                        "The same permission must not appear multiple times");
        }
    }
    out->v[out->n++] = r;
    return 0;
}

static int from_permission(struct aws_call *call, const struct sg *g, bool is_egress,
                           const struct ec2_ip_permission *p, struct sg_rule_list *out,
                           size_t cap, struct err *err)
{
    struct sg_rule base = {.is_egress = is_egress};
    int r = normal_protocol(p->ip_protocol, &base.protocol, err);
    if (r < 0 || (r = set_ports(&base, p->from_port, p->to_port, err)) < 0) {
        return r;
    }
    for (size_t i = 0; i < p->ip_ranges.n; i++) {
        struct sg_rule peer = {0};
        if ((r = normal_cidr4(call->arena, p->ip_ranges.v[i].cidr_ip, &peer.cidr, err)) < 0 ||
            (r = push(out, cap, &base, peer, p->ip_ranges.v[i].description, err)) < 0) {
            return r;
        }
    }
    for (size_t i = 0; i < p->ipv6_ranges.n; i++) {
        struct sg_rule peer = {0};
        if ((r = normal_cidr6(call->arena, p->ipv6_ranges.v[i].cidr_ipv6, &peer.cidr6, err)) <
                0 ||
            (r = push(out, cap, &base, peer, p->ipv6_ranges.v[i].description, err)) < 0) {
            return r;
        }
    }
    for (size_t i = 0; i < p->user_id_group_pairs.n; i++) {
        const struct ec2_user_id_group_pair *u = &p->user_id_group_pairs.v[i];
        struct sg_rule peer = {0};
        if ((r = set_group(call, g, u->group_id, u->group_name, u->user_id, &peer, err)) < 0 ||
            (r = push(out, cap, &base, peer, u->description, err)) < 0) {
            return r;
        }
    }
    if (p->prefix_list_ids.n > 0) {
        return fail(err, -ENOENT, "InvalidPrefixListID.NotFound",
                    "The prefix list ID '%.*s' does not exist",
                    STR_ARG(p->prefix_list_ids.v[0].prefix_list_id));
    }
    if (p->ip_ranges.n + p->ipv6_ranges.n + p->user_id_group_pairs.n == 0) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Invalid value for ipPermissions: a permission needs a CIDR range, a group "
                    "or a prefix list.");
    }
    return 0;
}

int sgrules_from_permissions(struct aws_call *call, const struct sg *g, bool is_egress,
                             const struct ec2_ip_permission_list *perms,
                             struct sg_rule_list *out, size_t cap, struct err *err)
{
    for (size_t i = 0; i < perms->n; i++) {
        int r = from_permission(call, g, is_egress, &perms->v[i], out, cap, err);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

bool sg_flat_is_set(const struct sg_flat *f)
{
    return str_is_set(f->protocol) || str_is_set(f->cidr) || str_is_set(f->group_name);
}

int sgrules_from_flat(struct aws_call *call, const struct sg *g, bool is_egress,
                      const struct sg_flat *f, struct sg_rule_list *out, size_t cap,
                      struct err *err)
{
    struct sg_rule base = {.is_egress = is_egress}, peer = {0};
    /* A source group without a protocol means everything (EC2 API reference,
     * AuthorizeSecurityGroupIngress). */
    struct str protocol =
        !str_is_set(f->protocol) && f->group_name.n > 0 ? STR("-1") : f->protocol;
    int r = normal_protocol(protocol, &base.protocol, err);
    if (r < 0 || (r = set_ports(&base, f->from, f->to, err)) < 0) {
        return r;
    }
    if (f->group_name.n > 0) {
        r = set_group(call, g, STR_NONE, f->group_name, f->group_owner, &peer, err);
    } else if (f->cidr.n > 0) {
        r = normal_cidr4(call->arena, f->cidr, &peer.cidr, err);
    } else {
        r = fail(err, -EINVAL, "MissingParameter",
                 "The request must contain the parameter cidrIp or sourceSecurityGroupName");
    }
    return r < 0 ? r : push(out, cap, &base, peer, STR(""), err);
}

bool sgrule_eq(const struct sg_rule *a, const struct sg_rule *b)
{
    return a->is_egress == b->is_egress && str_eq(a->protocol, b->protocol) &&
           a->port_from == b->port_from && a->port_to == b->port_to &&
           str_eq(a->cidr, b->cidr) && str_eq(a->cidr6, b->cidr6) &&
           str_eq(a->group_id, b->group_id) && str_eq(a->prefix_list_id, b->prefix_list_id);
}

struct str sgrule_text(struct arena *a, const struct sg_rule *r)
{
    struct str peer = r->cidr.n > 0 ? r->cidr : r->cidr6.n > 0 ? r->cidr6 : r->group_id;
    if (str_eqc(r->protocol, "-1")) {
        return arena_fmt(a, "peer: %.*s, ALL, ALLOW", STR_ARG(peer));
    }
    struct str name = arena_str_dup(a, r->protocol);
    char *p = (char *)(uintptr_t)name.p;
    for (size_t i = 0; p && i < name.n; i++) {
        p[i] = p[i] >= 'a' && p[i] <= 'z' ? (char)(p[i] - 32) : p[i];
    }
    return arena_fmt(a, "peer: %.*s, %.*s, from port: %lld, to port: %lld, ALLOW",
                     STR_ARG(peer), STR_ARG(name), (long long)r->port_from,
                     (long long)r->port_to);
}

static bool has_ports(struct str protocol)
{
    return str_eqc(protocol, "tcp") || str_eqc(protocol, "udp") || str_eqc(protocol, "icmp") ||
           str_eqc(protocol, "icmpv6");
}

static struct str text_or_none(struct str s)
{
    return s.n > 0 ? s : STR_NONE;
}

static void add_peer(struct aws_call *call, const struct sg_rule *r,
                     struct ec2_ip_permission *p)
{
    if (r->cidr.n > 0) {
        p->ip_ranges.v[p->ip_ranges.n++] = (struct ec2_ip_range){
            .cidr_ip = r->cidr, .description = text_or_none(r->description)};
    } else if (r->cidr6.n > 0) {
        p->ipv6_ranges.v[p->ipv6_ranges.n++] = (struct ec2_ipv6_range){
            .cidr_ipv6 = r->cidr6, .description = text_or_none(r->description)};
    } else {
        p->user_id_group_pairs.v[p->user_id_group_pairs.n++] =
            (struct ec2_user_id_group_pair){.group_id = r->group_id,
                                            .user_id = r->group_account,
                                            .description = text_or_none(r->description)};
    }
}

void sgrules_to_permissions(struct aws_call *call, const struct sg *g, bool is_egress,
                            struct ec2_ip_permission_list *out)
{
    struct arena *a = call->arena;
    size_t n = g->rules.n;
    AWS_LIST_MAKE(a, out, n);
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sg_rule *r = &g->rules.v[i];
        if (r->is_egress != is_egress) {
            continue;
        }
        struct ec2_ip_permission *p = NULL;
        for (size_t k = 0; k < out->n; k++) {
            struct ec2_ip_permission *q = &out->v[k];
            bool is_same_ports = !has_ports(r->protocol) ||
                                 (q->from_port.v == r->port_from && q->to_port.v == r->port_to);
            p = str_eq(q->ip_protocol, r->protocol) && is_same_ports ? q : p;
        }
        if (!p) {
            p = &out->v[out->n++];
            p->ip_protocol = r->protocol;
            if (has_ports(r->protocol)) {
                p->from_port = some_i64(r->port_from);
                p->to_port = some_i64(r->port_to);
            }
            AWS_LIST_MAKE(a, &p->ip_ranges, n);
            AWS_LIST_MAKE(a, &p->ipv6_ranges, n);
            AWS_LIST_MAKE(a, &p->user_id_group_pairs, n);
            AWS_LIST_MAKE(a, &p->prefix_list_ids, 0);
            p->ip_ranges.n = p->ipv6_ranges.n = p->user_id_group_pairs.n = 0;
        }
        add_peer(call, r, p);
    }
}

void sgrule_out(struct aws_call *call, const struct sg *g, const struct sg_rule *r,
                struct ec2_security_group_rule *o)
{
    o->security_group_rule_id = r->id;
    o->group_id = g->id;
    o->group_owner_id = g->account;
    o->is_egress = some_bool(r->is_egress);
    o->ip_protocol = r->protocol;
    o->from_port = some_i64(r->port_from);
    o->to_port = some_i64(r->port_to);
    o->cidr_ipv4 = text_or_none(r->cidr);
    o->cidr_ipv6 = text_or_none(r->cidr6);
    o->description = text_or_none(r->description);
    if (r->group_id.n > 0) {
        o->referenced_group_info =
            arena_new_of(call->arena, struct ec2_referenced_security_group);
        o->referenced_group_info->group_id = r->group_id;
        o->referenced_group_info->user_id = r->group_account;
        o->referenced_group_info->vpc_id = g->vpc_id;
    }
    o->security_group_rule_arn =
        arn_ec2(call->arena, call->region, g->account, "security-group-rule", r->id);
    tags_out(call->arena, tags_of(gw_of(call), call->arena, call->account, r->id), &o->tags);
}
