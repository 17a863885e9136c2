#include "model/config.h"
#include "base/file.h"
#include "codec/toml.h"
#include "model/network.h"
#include <errno.h>
#include <stdio.h>

#define MAX_FILE  (256u << 10)
#define MAX_ARENA (4u << 20)
#define MAX_POOL  65536u /* addresses: the gateway looks at a map of all when it gives one */

/* What the file holds; config_load() flattens it for this node. */
struct node_table {
    const char *name;
    const char *host, *region, *az, *data_dir, *run_dir, *when_full;
    const char **services;
    size_t n_services;
    uint64_t uid_base, awsgw_port, metrics_port, vcpu_overcommit_burstable;
    struct config_predastore predastore;
};
struct file {
    uint64_t version;
    const char *node, *region, *internal_suffix;
    const char *external_mode, *uplink;
    uint64_t guest_mtu;
    struct config_pool *pools;
    size_t n_pools;
    struct node_table *nodes;
    size_t n_nodes;
};

/* What config_load() gives: the config first, so that one pointer serves both. */
struct held {
    struct config c;
    struct arena *arena;
};

static bool is_word(struct str s, const char *more)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr(more, c))) {
            return false;
        }
    }
    return s.n > 0;
}

static const char *check_name(struct str s)
{
    return is_word(s, "-") && s.n <= 63 ? NULL
                                        : "may hold a-z, 0-9 and '-', at most 63 characters";
}

static const char *check_region(struct str s)
{
    return is_word(s, "-") && s.n <= 32 ? NULL : "is no region name like \"ap-southeast-2\"";
}

static const char *check_opt_region(struct str s)
{
    return s.n == 0 ? NULL : check_region(s);
}

static const char *check_host(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] <= ' ' || strchr("/\"'\\", s.p[i])) {
            return "is no host name or address";
        }
    }
    return s.n > 0 && s.n <= 253 ? NULL : "is no host name or address";
}

static const char *check_dns_suffix(struct str s)
{
    return is_word(s, "-.") && s.p[0] != '.' && s.p[s.n - 1] != '.' ? NULL
                                                                    : "is no domain name";
}

static const char *check_dir(struct str s)
{
    return s.n > 1 && s.p[0] == '/' && s.n < 80
               ? NULL
               : "must be an absolute path of at most 80 bytes";
}

static const char *check_drive(struct str s)
{
    if (s.n < 2 || s.p[0] != '/' || s.n > 200) {
        return "must be an absolute path of at most 200 bytes";
    }
    bool is_bad = s.p[s.n - 1] == '/' || str_find_str(s, STR("//")) >= 0 ||
                  str_find_str(s, STR("/./")) >= 0 || str_find_str(s, STR("/../")) >= 0 ||
                  str_has_suffix(s, STR("/.")) || str_has_suffix(s, STR("/.."));
    return is_bad ? "must be written without '//', '/.', '/..' and a '/' at the end" : NULL;
}

static const char *check_domain(struct str s)
{
    uint32_t ip = 0;
    return ip4_parse(s, &ip) == 0 ? "is an address, not a domain name" : check_dns_suffix(s);
}

static const char *check_ip4(struct str s)
{
    uint32_t ip = 0;
    return ip4_parse(s, &ip) == 0 ? NULL : "is not an IPv4 address";
}

static const char *check_source(struct str s)
{
    if (str_eqc(s, "static") || str_eqc(s, "retired")) {
        return NULL;
    }
    return str_eqc(s, "dhcp") ? "is not supported: use \"static\" with a range that your DHCP "
                                "server does not give out"
                              : "must be \"static\" or \"retired\"";
}

static const char *check_mode(struct str s)
{
    return str_eqc(s, "pool") ? NULL : "must be \"pool\"";
}

static const char *check_when_full(struct str s)
{
    return str_eqc(s, "stop") || str_eqc(s, "report") ? NULL : "must be \"stop\" or \"report\"";
}

static const char *check_link(struct str s)
{
    /* IFNAMSIZ is 16 with the NUL; ':' and '/' are not allowed in names of links. */
    return s.n < 16 && (s.n == 0 || is_word(s, "-_.@ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
               ? NULL
               : "is no name of a network interface";
}

static const char *const service_names[] = {"state", "awsgw",   "viperblock",
                                            "vpcd",  "compute", "predastore"};

static const char *check_service(struct str s)
{
    for (size_t i = 0; i < ARRAY_LEN(service_names); i++) {
        if (str_eqc(s, service_names[i])) {
            return NULL;
        }
    }
    return "must be state, awsgw, viperblock, vpcd, compute or predastore";
}

/* clang-format off */
static const struct toml_key pool_keys[] = {
    {.key = "name", .type = TOML_STR, .off = offsetof(struct config_pool, name), .is_required = true, .check = check_name,
     .doc = "Name of the pool."},
    {.key = "source", .type = TOML_STR, .off = offsetof(struct config_pool, source), .dflt = "static", .check = check_source,
     .doc = "static: the range; retired: no more are given out, those in use go on."},
    {.key = "range_start", .type = TOML_STR, .off = offsetof(struct config_pool, range_start), .is_required = true,
     .check = check_ip4, .doc = "First public address that guests may get."},
    {.key = "range_end", .type = TOML_STR, .off = offsetof(struct config_pool, range_end), .is_required = true,
     .check = check_ip4, .doc = "Last public address that guests may get."},
    {.key = "gateway", .type = TOML_STR, .off = offsetof(struct config_pool, gateway), .is_required = true, .check = check_ip4,
     .doc = "Router of the network of the range."},
    {.key = "prefix_len", .type = TOML_INT, .off = offsetof(struct config_pool, prefix_len), .dflt = "24", .min = 8, .max = 30,
     .doc = "Length of the prefix of that network."},
    {.key = "dns_servers", .type = TOML_STR_LIST, .off = offsetof(struct config_pool, dns_servers), .max = 8,
     .check = check_ip4, .doc = "Servers that names outside are asked of."},
};
static const struct toml_schema pool_schema = {sizeof(struct config_pool), pool_keys, ARRAY_LEN(pool_keys)};

static const struct toml_key aws_keys[] = {
    {.key = "region", .type = TOML_STR, .off = offsetof(struct file, region), .dflt = "ap-southeast-2", .check = check_region,
     .doc = "Name of the region that this cloud is."},
    {.key = "internal_suffix", .type = TOML_STR, .off = offsetof(struct file, internal_suffix), .dflt = "compute.internal",
     .check = check_dns_suffix, .doc = "End of private DNS names of instances."},
};
static const struct toml_schema aws_schema = {0, aws_keys, ARRAY_LEN(aws_keys)};

static const struct toml_key network_keys[] = {
    {.key = "external_mode", .type = TOML_STR, .off = offsetof(struct file, external_mode), .dflt = "pool", .check = check_mode,
     .doc = "How guests reach the outside."},
    {.key = "guest_mtu", .type = TOML_INT, .off = offsetof(struct file, guest_mtu), .dflt = "9001", .min = 1280, .max = 9216,
     .doc = "MTU of the guests' interfaces."},
    {.key = "uplink", .type = TOML_STR, .off = offsetof(struct file, uplink), .check = check_link,
     .doc = "Interface of the host's LAN that public addresses answer on; empty: reachable from this host only."},
    {.key = "external_pools", .type = TOML_TABLES, .off = offsetof(struct file, pools), .sub = &pool_schema, .max = 16},
};
static const struct toml_schema network_schema = {0, network_keys, ARRAY_LEN(network_keys)};

static const struct toml_key awsgw_keys[] = {
    {.key = "port", .type = TOML_INT, .off = offsetof(struct node_table, awsgw_port), .dflt = "9999", .min = 1, .max = 65535,
     .doc = "TCP port of the AWS API."},
    {.key = "metrics_port", .type = TOML_INT, .off = offsetof(struct node_table, metrics_port), .dflt = "0", .max = 65535,
     .doc = "TCP port on 127.0.0.1 where Prometheus finds the counters of all services, at /metrics (init writes 9998); 0: none."},
};
static const struct toml_schema awsgw_schema = {0, awsgw_keys, ARRAY_LEN(awsgw_keys)};

static const struct toml_key compute_keys[] = {
    {.key = "vcpu_overcommit_burstable", .type = TOML_INT, .off = offsetof(struct node_table, vcpu_overcommit_burstable),
     .dflt = "4", .min = 1, .max = 64, .doc = "vCPUs of burstable types (t2, t3, t3a, t4g) given out per CPU of the host."},
};
static const struct toml_schema compute_schema = {0, compute_keys, ARRAY_LEN(compute_keys)};

static const struct toml_key viperblock_keys[] = {
    {.key = "when_full", .type = TOML_STR, .off = offsetof(struct node_table, when_full), .dflt = "stop", .check = check_when_full,
     .doc = "What guests see when the disk below their volumes is full: \"stop\": writes wait for room; \"report\": they fail."},
};
static const struct toml_schema viperblock_schema = {0, viperblock_keys, ARRAY_LEN(viperblock_keys)};

#define IN_PREDASTORE(member) offsetof(struct node_table, predastore.member)
static const struct toml_key rs_keys[] = {
    {.key = "data", .type = TOML_INT, .off = IN_PREDASTORE(rs_data), .min = 1, .max = CONFIG_MAX_RS_DATA,
     .doc = "Drives that the bytes of a large object are spread over; not set: chosen from the number of drives."},
    {.key = "parity", .type = TOML_INT, .off = IN_PREDASTORE(rs_parity), .max = CONFIG_MAX_RS_PARITY,
     .doc = "Drives that may be lost without losing an object; goes with data."},
};
static const struct toml_schema rs_schema = {0, rs_keys, ARRAY_LEN(rs_keys)};

static const struct toml_key predastore_keys[] = {
    {.key = "port", .type = TOML_INT, .off = IN_PREDASTORE(port), .dflt = "8443", .min = 1, .max = 65535,
     .doc = "TCP port of S3."},
    {.key = "drives", .type = TOML_STR_LIST, .off = IN_PREDASTORE(drives), .max = CONFIG_MAX_DRIVES, .check = check_drive,
     .doc = "Folders that objects lie in, best each a file system of its own; not set: predastore/drive1 in data_dir."},
    {.key = "rs", .type = TOML_TABLE, .sub = &rs_schema},
    {.key = "encrypt", .type = TOML_BOOL, .off = IN_PREDASTORE(is_encrypted), .dflt = "true",
     .doc = "Seal new objects on the drives (AES-256-GCM)."},
    {.key = "domains", .type = TOML_STR_LIST, .off = IN_PREDASTORE(domains), .max = 16, .check = check_domain,
     .doc = "Domains whose subdomains are buckets; not set: s3.REGION.INTERNAL_SUFFIX and s3.localhost."},
    {.key = "inline_max", .type = TOML_SIZE, .off = IN_PREDASTORE(inline_max), .dflt = "131072", .max = 229376,
     .doc = "Objects up to this size lie in the log, larger ones in files of their own."},
    {.key = "near_full_pct", .type = TOML_INT, .off = IN_PREDASTORE(near_full_pct), .dflt = "90", .min = 1, .max = 99,
     .doc = "Percent of a drive from which on writes are slowed down (SlowDown), unless 32 GiB are left."},
    {.key = "full_pct", .type = TOML_INT, .off = IN_PREDASTORE(full_pct), .dflt = "95", .min = 2, .max = 100,
     .doc = "Percent of a drive from which on writes are refused, unless 8 GiB are left; reads and deletes go on."},
    {.key = "max_conns_per_ip", .type = TOML_INT, .off = IN_PREDASTORE(max_conns_per_ip), .dflt = "6144", .min = 16, .max = 16384,
     .doc = "Connections that one address may have of the 16,384 that the port takes; raise it when many clients share an address (NAT)."},
};
static const struct toml_schema predastore_schema = {0, predastore_keys, ARRAY_LEN(predastore_keys)};

static const struct toml_key node_keys[] = {
    {.key = "host", .type = TOML_STR, .off = offsetof(struct node_table, host), .dflt = "127.0.0.1", .check = check_host,
     .doc = "Address or name under which the node is reached."},
    {.key = "region", .type = TOML_STR, .off = offsetof(struct node_table, region), .check = check_opt_region,
     .doc = "Region of the node; empty: aws.region."},
    {.key = "az", .type = TOML_STR, .off = offsetof(struct node_table, az), .check = check_opt_region,
     .doc = "Availability zone of the node; empty: the region and \"a\"."},
    {.key = "data_dir", .type = TOML_STR, .off = offsetof(struct node_table, data_dir), .dflt = "/var/lib/spinifex",
     .check = check_dir, .doc = "Folder of everything that must last."},
    {.key = "run_dir", .type = TOML_STR, .off = offsetof(struct node_table, run_dir), .dflt = "/run/spinifex",
     .check = check_dir, .doc = "Folder of sockets."},
    {.key = "services", .type = TOML_STR_LIST, .off = offsetof(struct node_table, services),
     .dflt = "state,awsgw,viperblock,vpcd,compute,predastore", .min = 1, .max = 16, .check = check_service,
     .doc = "Services that run on the node."},
    {.key = "uid_base", .type = TOML_INT, .off = offsetof(struct node_table, uid_base), .dflt = "0", .max = 2000000000,
     .doc = "First of the user ids that services and guests run under; 0: nobody changes users (tests)."},
    {.key = "awsgw", .type = TOML_TABLE, .sub = &awsgw_schema},
    {.key = "compute", .type = TOML_TABLE, .sub = &compute_schema},
    {.key = "predastore", .type = TOML_TABLE, .sub = &predastore_schema},
    {.key = "viperblock", .type = TOML_TABLE, .sub = &viperblock_schema},
};
static const struct toml_schema node_schema = {sizeof(struct node_table), node_keys, ARRAY_LEN(node_keys)};

static const struct toml_key file_keys[] = {
    {.key = "version", .type = TOML_INT, .off = offsetof(struct file, version), .is_required = true, .min = CONFIG_VERSION,
     .max = CONFIG_VERSION, .doc = "Version of this layout."},
    {.key = "node", .type = TOML_STR, .off = offsetof(struct file, node), .is_required = true, .check = check_name,
     .doc = "Name of the node that this file is on: one of nodes."},
    {.key = "aws", .type = TOML_TABLE, .sub = &aws_schema},
    {.key = "network", .type = TOML_TABLE, .sub = &network_schema},
    {.key = "nodes", .type = TOML_NAMED, .off = offsetof(struct file, nodes), .sub = &node_schema, .is_required = true,
     .max = 64},
};
static const struct toml_schema file_schema = {sizeof(struct file), file_keys, ARRAY_LEN(file_keys)};
/* clang-format on */

static int check_pool(const char *file, const struct config_pool *p, struct err *err)
{
    uint32_t start = 0, end = 0, gw = 0;
    if (ip4_parse(str_c(p->range_start), &start) < 0 ||
        ip4_parse(str_c(p->range_end), &end) < 0 || ip4_parse(str_c(p->gateway), &gw) < 0) {
        abort(); /* the table has checked them */
    }
    uint32_t mask = UINT32_MAX << (32 - p->prefix_len);
    const char *what = NULL;
    if (start > end) {
        what = "range_start comes after range_end";
    } else if ((start & mask) != (end & mask) || (gw & mask) != (start & mask)) {
        what = "range and gateway are not in one network of prefix_len";
    } else if (start == (start & mask) || end == (end | ~mask)) {
        what = "the range holds the network's own or its broadcast address";
    } else if (gw >= start && gw <= end) {
        what = "the gateway lies in the range";
    } else if (end - start >= MAX_POOL) {
        what = "the range has more than 65536 addresses";
    }
    return what ? fail(err, -EINVAL, "BadConfig", "%s: network.external_pools '%s': %s", file,
                       p->name, what)
                : 0;
}

static int check_pools(const char *file, const struct file *f, struct err *err)
{
    for (size_t i = 0; i < f->n_pools; i++) {
        const struct config_pool *p = &f->pools[i];
        int r = check_pool(file, p, err);
        if (r < 0) {
            return r;
        }
        for (size_t k = 0; k < i; k++) {
            uint32_t a = 0, b = 0, c = 0, d = 0;
            const struct config_pool *q = &f->pools[k];
            if (ip4_parse(str_c(p->range_start), &a) < 0 ||
                ip4_parse(str_c(p->range_end), &b) < 0 ||
                ip4_parse(str_c(q->range_start), &c) < 0 ||
                ip4_parse(str_c(q->range_end), &d) < 0) {
                abort();
            }
            if (strcmp(p->name, q->name) == 0 || (a <= d && c <= b)) {
                return fail(err, -EINVAL, "BadConfig",
                            "%s: network.external_pools '%s' and '%s' overlap", file, q->name,
                            p->name);
            }
        }
    }
    return 0;
}

void config_default_rs(size_t n_drives, uint64_t *ret_data, uint64_t *ret_parity)
{
    uint64_t parity = n_drives < 2 ? 0 : n_drives < 6 ? 1 : 2;
    *ret_parity = parity;
    *ret_data = MIN(MAX(n_drives, (size_t)1) - parity, (uint64_t)CONFIG_MAX_RS_DATA);
}

/* One folder is the other, or lies in it. */
static bool is_within(struct str inner, struct str outer)
{
    return str_has_prefix(inner, outer) && (inner.n == outer.n || inner.p[outer.n] == '/');
}

static int check_drives(const char *file, const struct config *c, struct err *err)
{
    const struct config_predastore *p = &c->predastore;
    for (size_t i = 0; i < p->n_drives; i++) {
        for (size_t k = 0; k < i; k++) {
            struct str a = str_c(p->drives[i]), b = str_c(p->drives[k]);
            if (is_within(a, b) || is_within(b, a)) {
                return fail(err, -EINVAL, "BadConfig",
                            "%s: nodes.%s.predastore.drives: '%s' and '%s' are one folder, or "
                            "one lies in the other",
                            file, c->node, p->drives[k], p->drives[i]);
            }
        }
    }
    return 0;
}

/* Puts in what the file leaves open, and checks members against each other. */
static int complete_predastore(const char *file, struct arena *a, struct config *c,
                               struct err *err)
{
    struct config_predastore *p = &c->predastore;
    if (p->n_drives == 0) {
        p->drives = arena_xalloc(a, sizeof(*p->drives));
        p->drives[p->n_drives++] = config_data_path(a, c, DATA_PREDASTORE_DRIVE);
    }
    if (p->n_domains == 0) {
        p->domains = arena_xalloc(a, 2 * sizeof(*p->domains));
        p->domains[p->n_domains++] =
            arena_cstr(a, arena_fmt(a, "s3.%s.%s", c->region, c->internal_suffix));
        p->domains[p->n_domains++] = "s3.localhost";
    }
    int r = check_drives(file, c, err);
    if (r < 0) {
        return r;
    }
    if (p->rs_data == 0 && p->rs_parity > 0) {
        return fail(err, -EINVAL, "BadConfig",
                    "%s: nodes.%s.predastore.rs: parity is set, but data is not", file,
                    c->node);
    }
    if (p->rs_data == 0) {
        config_default_rs(p->n_drives, &p->rs_data, &p->rs_parity);
    }
    if (p->rs_data + p->rs_parity > p->n_drives) {
        return fail(err, -EINVAL, "BadConfig",
                    "%s: nodes.%s.predastore.rs: data %u and parity %u need %u drives, but "
                    "there are %zu",
                    file, c->node, (unsigned)p->rs_data, (unsigned)p->rs_parity,
                    (unsigned)(p->rs_data + p->rs_parity), p->n_drives);
    }
    if (p->near_full_pct >= p->full_pct) {
        return fail(err, -EINVAL, "BadConfig",
                    "%s: nodes.%s.predastore: near_full_pct %u is not below full_pct %u", file,
                    c->node, (unsigned)p->near_full_pct, (unsigned)p->full_pct);
    }
    if (c->metrics_port != 0 &&
        (c->metrics_port == c->awsgw_port || c->metrics_port == c->predastore.port)) {
        return fail(err, -EINVAL, "BadConfig",
                    "%s: nodes.%s.awsgw: metrics_port %u is the port of another service", file,
                    c->node, (unsigned)c->metrics_port);
    }
    if (c->predastore.port == c->awsgw_port) {
        return fail(err, -EINVAL, "BadConfig",
                    "%s: nodes.%s: awsgw.port and predastore.port are both %u", file, c->node,
                    (unsigned)c->awsgw_port);
    }
    return 0;
}

static int flatten(const char *file, struct arena *a, const struct file *f, struct config *c,
                   struct err *err)
{
    const struct node_table *n = NULL;
    for (size_t i = 0; i < f->n_nodes; i++) {
        if (check_name(str_c(f->nodes[i].name))) {
            return fail(err, -EINVAL, "BadConfig", "%s: nodes.%s: a node's name %s", file,
                        f->nodes[i].name, check_name(str_c(f->nodes[i].name)));
        }
        if (strcmp(f->nodes[i].name, f->node) == 0) {
            n = &f->nodes[i];
        }
    }
    if (!n) {
        return fail(err, -EINVAL, "BadConfig",
                    "%s: node is '%s', but there is no table [nodes.%s]", file, f->node,
                    f->node);
    }
    *c = (struct config){
        .version = f->version,
        .node = f->node,
        .region = n->region[0] ? n->region : f->region,
        .internal_suffix = f->internal_suffix,
        .external_mode = f->external_mode,
        .guest_mtu = f->guest_mtu,
        .uplink = f->uplink,
        .pools = f->pools,
        .n_pools = f->n_pools,
        .host = n->host,
        .data_dir = n->data_dir,
        .run_dir = n->run_dir,
        .awsgw_port = n->awsgw_port,
        .metrics_port = n->metrics_port,
        .services = n->services,
        .n_services = n->n_services,
        .vcpu_overcommit_burstable = n->vcpu_overcommit_burstable,
        .is_full_reported = strcmp(n->when_full, "report") == 0,
        .predastore = n->predastore,
        .uid_base = n->uid_base,
    };
    c->path = arena_cstr(a, str_c(file));
    c->az = n->az[0] ? n->az : arena_cstr(a, arena_fmt(a, "%sa", c->region));
    if (!str_has_prefixc(str_c(c->az), c->region) || strlen(c->az) != strlen(c->region) + 1) {
        return fail(err, -EINVAL, "BadConfig",
                    "%s: nodes.%s.az is '%s', but must be the region '%s' and one letter", file,
                    c->node, c->az, c->region);
    }
    return complete_predastore(file, a, c, err);
}

int config_parse(const char *file, struct str text, struct config **ret, struct err *err)
{
    struct file f;
    struct arena *a = arena_new(MAX_ARENA);
    struct held *h = arena_new_of(a, struct held);
    h->arena = a;
    int r = toml_load(&file_schema, a, file, text, &f, err);
    r = r < 0 ? r : check_pools(file, &f, err);
    r = r < 0 ? r : flatten(file, a, &f, &h->c, err);
    if (r < 0) {
        arena_free(a);
        return r;
    }
    *ret = &h->c;
    return 0;
}

int config_load(const char *path, struct config **ret, struct err *err)
{
    if (!path) {
        path = getenv("SPX_CONFIG");
    }
    if (!path || !path[0]) {
        path = CONFIG_PATH;
    }
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    int r = file_read(path, MAX_FILE, &text, &n, err);
    return r < 0 ? r : config_parse(path, str_n(text, n), ret, err);
}

void config_free(struct config *c)
{
    if (c) {
        arena_free(CONTAINER_OF(c, struct held, c)->arena);
    }
}

void config_doc(struct buf *out)
{
    toml_doc(&file_schema, out);
}

bool config_has_service(const struct config *c, const char *service)
{
    for (size_t i = 0; i < c->n_services; i++) {
        if (strcmp(c->services[i], service) == 0) {
            return true;
        }
    }
    return false;
}

const char *config_run_path(struct arena *a, const struct config *c, const char *name)
{
    return arena_cstr(a, arena_fmt(a, "%s/%s", c->run_dir, name));
}

const char *config_data_path(struct arena *a, const struct config *c, const char *name)
{
    return arena_cstr(a, arena_fmt(a, "%s/%s", c->data_dir, name));
}
