#include "base/time.h"
#include "codec/json.h"
#include "model/identity.h"
#include "model/instance.h"
#include "model/network.h"
#include "model/node.h"
#include "model/volume.h"
#include "spx/cmds.h"
#include "spx/data.h"
#include "spx/table.h"
#include <errno.h>
#include <stdio.h>

/* The order in which services are named, as they start. */
static const char *const service_order[] = {"state",   "viperblock", "vpcd",
                                            "compute", "awsgw",      "predastore"};

static bool is_of_account(const struct spx *s, struct str account)
{
    const char *want = spx_value(s, "--account");
    return !want || str_eqc(account, want);
}

/* "node/<node>/<last>" */
static bool split_node_key(struct str key, struct str *ret_node, struct str *ret_last)
{
    struct str rest = key, part = STR_NONE;
    return str_next(&rest, '/', &part) && str_next(&rest, '/', ret_node) &&
           str_next(&rest, '/', ret_last) && !rest.p;
}

static uint64_t count_vms(const struct recs *instances, struct str node)
{
    uint64_t n = 0;
    for (size_t i = 0; i < instances->n; i++) {
        const struct instance *x = recs_at(instances, struct instance, i);
        n += str_eq(x->node, node) && str_eqc(x->want, INSTANCE_WANT_RUNNING) &&
             x->terminated_ns == 0;
    }
    return n;
}

struct node_row {
    struct str name;
    const struct node_facts *facts;
    const struct node_service *services[ARRAY_LEN(service_order)];
};

struct node_rows {
    struct spx *s;
    struct node_row *v;
    size_t n, cap;
};

static struct node_row *row_of(struct node_rows *rows, struct str name)
{
    for (size_t i = 0; i < rows->n; i++) {
        if (str_eq(rows->v[i].name, name)) {
            return &rows->v[i];
        }
    }
    if (rows->n == rows->cap) {
        size_t cap = rows->cap ? rows->cap * 2 : 16;
        struct node_row *v = arena_xalloc(rows->s->arena, cap * sizeof(*v));
        if (rows->n) {
            memcpy(v, rows->v, rows->n * sizeof(*v));
        }
        rows->v = v;
        rows->cap = cap;
    }
    struct node_row *row = &rows->v[rows->n++];
    *row = (struct node_row){.name = arena_str_dup(rows->s->arena, name)};
    return row;
}

static int load_node_item(void *ctx, const struct kv_item *item, struct err *err)
{
    struct node_rows *rows = ctx;
    struct arena *a = rows->s->arena;
    struct str node = STR_NONE, last = STR_NONE;
    if (!split_node_key(item->key, &node, &last)) {
        return 0;
    }
    struct node_row *row = row_of(rows, node);
    if (str_eqc(last, "facts")) {
        struct node_facts *f = arena_new_of(a, struct node_facts);
        row->facts = f;
        return rec_load(&node_facts_desc, a, item->value, f, err);
    }
    for (size_t i = 0; i < ARRAY_LEN(service_order); i++) {
        if (str_eqc(last, service_order[i])) {
            struct node_service *x = arena_new_of(a, struct node_service);
            row->services[i] = x;
            return rec_load(&node_service_desc, a, item->value, x, err);
        }
    }
    return 0;
}

/* All nodes; the own one also when nothing of it has reported yet. */
static int load_nodes(struct spx *s, struct node_rows *rows, struct err *err)
{
    *rows = (struct node_rows){.s = s};
    int r = spx_state(s, err);
    r = r < 0 ? r : data_each(s->kv, STR("node/"), load_node_item, rows, err);
    if (r < 0) {
        return r;
    }
    /* What answered us is the store of this node. */
    static struct node_service self = {.service = {"state", 5}};
    struct node_row *own = row_of(rows, str_c(s->cfg->node));
    if (!own->services[0]) {
        own->services[0] = &self;
    }
    return 0;
}

static bool is_wanted(const struct spx *s, const struct node_row *row, const char *service)
{
    return !str_eqc(row->name, s->cfg->node) || config_has_service(s->cfg, service);
}

/* A service may run and not be well; of this node they can be asked. Who cannot, says nothing. */
static bool is_degraded(struct spx *s, const char *service)
{
    AUTO(json_freep) struct json *j = NULL;
    struct err e = ERR_INIT;
    const char *socket = arena_cstr(s->arena, arena_fmt(s->arena, "%s.sock", service));
    if (spx_call(s, socket, "health", STR("{}"), -1, 2 * NS_PER_S, &j, &e) < 0) {
        return false;
    }
    return !str_eqc(json_get_str(j, "status"), "ok");
}

static void node_table_row(struct spx *s, struct table *t, const struct node_row *row,
                           uint64_t n_vms)
{
    struct str names[ARRAY_LEN(service_order)];
    size_t n = 0;
    bool is_ready = true;
    const struct node_service *any = NULL;
    for (size_t i = 0; i < ARRAY_LEN(service_order); i++) {
        if (row->services[i]) {
            names[n++] = str_c(service_order[i]);
            any = str_is_set(row->services[i]->ip) ? row->services[i] : any;
        } else if (is_wanted(s, row, service_order[i])) {
            is_ready = false;
        }
    }
    bool is_own = str_eqc(row->name, s->cfg->node), is_well = true;
    const struct node_facts *f = row->facts;
    for (size_t i = 0; is_own && is_ready && i < n; i++) {
        is_well = is_well && !is_degraded(s, arena_cstr(s->arena, names[i]));
    }
    table_str(t, row->name);
    table_cstr(t, !is_ready ? "NotReady" : is_well ? "Ready" : "Degraded");
    table_cstr(t, is_own && row->services[0] ? "state:leader" : NULL);
    table_str(t, f ? f->ip : any ? any->ip : is_own ? str_c(s->cfg->host) : STR_NONE);
    table_str(t, f ? f->region : any ? any->region : is_own ? str_c(s->cfg->region) : STR_NONE);
    table_str(t, f ? f->az : any ? any->az : is_own ? str_c(s->cfg->az) : STR_NONE);
    table_u64(t, n_vms);
    table_list(t, names, n);
}

int cmd_get_nodes(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"NAME", "name"}, {"STATUS", "status"},     {"ROLES", "roles"},
        {"IP", "ip"},     {"REGION", "region"},     {"AZ", "az"},
        {"VMs", "vms"},   {"SERVICES", "services"},
    };
    struct node_rows rows;
    struct recs instances;
    int r = load_nodes(s, &rows, err);
    r = r < 0 ? r : data_load(s, "spec/instance/", &instance_desc, &instances, err);
    if (r < 0) {
        return r;
    }
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    for (size_t i = 0; i < rows.n; i++) {
        node_table_row(s, t, &rows.v[i], count_vms(&instances, rows.v[i].name));
    }
    table_print(t, s->is_json);
    return 0;
}

/* Addresses of the first interface: "172.31.0.4 (198.51.100.7)". */
static struct str addresses(struct spx *s, const struct recs *enis, struct str instance)
{
    for (size_t i = 0; i < enis->n; i++) {
        const struct eni *e = recs_at(enis, struct eni, i);
        if (str_eq(e->instance_id, instance) && e->device_index == 0) {
            return e->public_ip.n ? arena_fmt(s->arena, "%.*s (%.*s)", STR_ARG(e->private_ip),
                                              STR_ARG(e->public_ip))
                                  : e->private_ip;
        }
    }
    return STR_NONE;
}

static void vm_row(struct spx *s, struct table *t, const struct instance *x,
                   const struct instance_status *st, const struct recs *enis, uint64_t now)
{
    bool is_ok = st && str_eqc(st->instance_check, "ok") && str_eqc(st->system_check, "ok");
    table_str(t, x->id);
    table_str(t, st ? st->state : STR("pending"));
    table_str(t, !st                    ? STR_NONE
                 : is_ok                ? STR("ok")
                 : st->instance_check.n ? st->instance_check
                                        : STR_NONE);
    table_u64(t, st ? st->n_crashes : 0);
    table_str(t, x->instance_type);
    table_u64(t, x->n_vcpus);
    table_num(t, x->memory_mib, table_size(s->arena, x->memory_mib << 20));
    table_str(t, x->node);
    table_str(t, addresses(s, enis, x->id));
    table_num(t, (now - MIN(now, x->launch_ns)) / NS_PER_S,
              table_age(s->arena, x->launch_ns, now));
    table_str(t, x->account);
}

int cmd_get_vms(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"INSTANCE", "instance"}, {"STATUS", "status"},   {"HEALTH", "health"},
        {"CRASHES", "crashes"},   {"TYPE", "type"},       {"VCPU", "vcpus"},
        {"MEM", "memory_mib"},    {"NODE", "node"},       {"IP", "ip"},
        {"AGE", "age_s"},         {"ACCOUNT", "account"},
    };
    struct recs instances, statuses, enis;
    int r = data_load(s, "spec/instance/", &instance_desc, &instances, err);
    r = r < 0 ? r : data_load(s, "status/instance/", &instance_status_desc, &statuses, err);
    r = r < 0 ? r : data_load(s, "spec/eni/", &eni_desc, &enis, err);
    if (r < 0) {
        return r;
    }
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    uint64_t now = time_wall_ns();
    for (size_t i = 0; i < instances.n; i++) {
        const struct instance *x = recs_at(&instances, struct instance, i);
        const struct instance_status *st = data_find(&statuses, x->id);
        bool is_over = st && str_eqc(st->state, "terminated");
        if (is_of_account(s, x->account) && (!is_over || spx_is_set(s, "--all"))) {
            vm_row(s, t, x, st, &enis, now);
        }
    }
    table_print(t, s->is_json);
    return 0;
}

static struct str volume_state(const struct volume *v, const struct volume_status *st)
{
    if (!st) {
        return STR("creating");
    }
    return v->instance_id.n && str_eqc(st->state, "available") ? STR("in-use") : st->state;
}

int cmd_get_volumes(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"VOLUME", "volume"},     {"STATUS", "status"}, {"SIZE", "size_gib"},
        {"ON DISK", "allocated"}, {"TYPE", "type"},     {"INSTANCE", "instance"},
        {"DEVICE", "device"},     {"NODE", "node"},     {"AGE", "age_s"},
        {"ACCOUNT", "account"},
    };
    struct recs volumes, statuses;
    int r = data_load(s, "spec/volume/", &volume_desc, &volumes, err);
    r = r < 0 ? r : data_load(s, "status/volume/", &volume_status_desc, &statuses, err);
    if (r < 0) {
        return r;
    }
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    uint64_t now = time_wall_ns();
    for (size_t i = 0; i < volumes.n; i++) {
        const struct volume *v = recs_at(&volumes, struct volume, i);
        const struct volume_status *st = data_find(&statuses, v->id);
        if (!is_of_account(s, v->account)) {
            continue;
        }
        table_str(t, v->id);
        table_str(t, volume_state(v, st));
        table_num(t, v->size_gib, table_size(s->arena, v->size_gib << 30));
        table_num(t, st ? st->allocated : 0,
                  st ? table_size(s->arena, st->allocated) : STR_NONE);
        table_str(t, v->type);
        table_str(t, v->instance_id.n ? v->instance_id : STR_NONE);
        table_str(t, v->device.n ? v->device : STR_NONE);
        table_str(t, v->node);
        table_num(t, (now - MIN(now, v->create_ns)) / NS_PER_S,
                  table_age(s->arena, v->create_ns, now));
        table_str(t, v->account);
    }
    table_print(t, s->is_json);
    return 0;
}

int cmd_get_images(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"IMAGE", "image"},   {"NAME", "name"}, {"ARCH", "arch"},
        {"BOOT", "boot"},     {"SIZE", "size"}, {"STATUS", "status"},
        {"PUBLIC", "public"}, {"AGE", "age_s"}, {"OWNER", "owner"},
    };
    struct recs images, statuses;
    int r = data_load(s, "spec/image/", &image_desc, &images, err);
    r = r < 0 ? r : data_load(s, "status/image/", &image_status_desc, &statuses, err);
    if (r < 0) {
        return r;
    }
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    uint64_t now = time_wall_ns();
    for (size_t i = 0; i < images.n; i++) {
        const struct image *x = recs_at(&images, struct image, i);
        const struct image_status *st = data_find(&statuses, x->id);
        table_str(t, x->id);
        table_str(t, x->name);
        table_str(t, x->arch);
        table_str(t, x->boot_mode);
        table_num(t, x->size, table_size(s->arena, x->size));
        table_str(t, st ? st->state : STR("pending"));
        table_cstr(t, x->is_public ? "yes" : "no");
        table_num(t, (now - MIN(now, x->create_ns)) / NS_PER_S,
                  table_age(s->arena, x->create_ns, now));
        table_str(t, x->account);
    }
    table_print(t, s->is_json);
    return 0;
}

int cmd_get_accounts(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"ACCOUNT ID", "account"},
        {"NAME", "name"},
        {"STATUS", "status"},
        {"CREATED", "created"},
    };
    struct account_list l = {0};
    int r = spx_state(s, err);
    r = r < 0 ? r : identity_list_accounts(s->kv, s->arena, &l, err);
    if (r < 0) {
        return r;
    }
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    for (size_t i = 0; i < l.n; i++) {
        char created[TIME_ISO_SIZE];
        table_str(t, l.v[i].id);
        table_str(t, l.v[i].name);
        table_str(t, l.v[i].status);
        table_cstr(t, time_iso_s(l.v[i].create_ns, created));
    }
    table_print(t, s->is_json);
    return 0;
}

/* How many more of a type fit into what a node has left, by the rule of admission. */
static uint64_t n_fitting(const struct config *cfg, const struct node_facts *f,
                          const struct node_capacity *used, const struct instance_type *type)
{
    uint64_t cpus = f->usable_vcpus * 100, used_cpus = used ? used->used_cpu_percent : 0;
    uint64_t mem = f->usable_memory_mib, used_mem = used ? used->used_memory_mib : 0;
    uint64_t cost =
        node_cpu_percent(type->n_vcpus, type->is_burstable, cfg->vcpu_overcommit_burstable);
    uint64_t by_cpu = cpus > used_cpus && cost ? (cpus - used_cpus) / cost : 0;
    uint64_t by_mem =
        mem > used_mem && type->memory_mib ? (mem - used_mem) / type->memory_mib : 0;
    return MIN(by_cpu, by_mem);
}

static void type_rows(struct spx *s, struct table *t, const struct node_rows *rows,
                      const struct recs *capacity)
{
    for (size_t i = 0; i < rows->n; i++) {
        const struct node_facts *f = rows->v[i].facts;
        for (size_t k = 0; f && k < f->types.n; k++) {
            const struct instance_type *type = &f->types.v[k];
            table_str(t, rows->v[i].name);
            table_str(t, type->name);
            table_u64(t, n_fitting(s->cfg, f, data_find(capacity, rows->v[i].name), type));
            table_u64(t, type->n_vcpus);
            table_num(t, type->memory_mib, table_size(s->arena, type->memory_mib << 20));
        }
    }
}

/* One row a node: for people "used/whole", for programs the numbers. */
static void top_row(struct spx *s, struct table *t, const struct node_row *row,
                    const struct node_capacity *c, uint64_t n_vms)
{
    const struct node_facts *f = row->facts;
    uint64_t cpus = f ? f->usable_vcpus : 0, used_cpus = c ? c->used_cpu_percent : 0;
    uint64_t mem = f ? f->usable_memory_mib : 0, used_mem = c ? c->used_memory_mib : 0;
    table_str(t, row->name);
    if (s->is_json) {
        table_u64(t, used_cpus);
        table_u64(t, cpus);
        table_u64(t, used_mem);
        table_u64(t, mem);
    } else {
        struct str used = table_size(s->arena, used_mem << 20);
        struct str whole = table_size(s->arena, mem << 20);
        table_str(t,
                  arena_fmt(s->arena, "%llu.%02llu/%llu", (unsigned long long)used_cpus / 100,
                            (unsigned long long)used_cpus % 100, (unsigned long long)cpus));
        table_str(t, arena_fmt(s->arena, "%.*s/%.*s", STR_ARG(used), STR_ARG(whole)));
    }
    table_str(t, f ? f->accel : STR_NONE);
    table_str(t, STR_NONE); /* no GPUs are managed yet: "-" */
    table_u64(t, n_vms);
}

int cmd_top_nodes(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"NAME", "name"},   {"CPU", NULL}, {"MEMORY", NULL},
        {"ACCEL", "accel"}, {"GPU", NULL}, {"VMs", NULL},
    };
    static const struct table_col json_cols[] = {
        {"", "name"},       {"", "cpu_percent_used"},
        {"", "vcpus"},      {"", "memory_mib_used"},
        {"", "memory_mib"}, {"", "accel"},
        {"", "gpu"},        {"", "vms"},
    };
    static const struct table_col type_cols[] = {
        {"NODE", "node"},  {"INSTANCE TYPE", "instance_type"}, {"AVAILABLE", "available"},
        {"VCPU", "vcpus"}, {"MEMORY", "memory_mib"},
    };
    struct node_rows rows;
    struct recs instances, capacity;
    int r = load_nodes(s, &rows, err);
    r = r < 0 ? r : data_load(s, "spec/instance/", &instance_desc, &instances, err);
    r = r < 0 ? r : data_load(s, "claim/capacity/", &node_capacity_desc, &capacity, err);
    if (r < 0) {
        return r;
    }
    struct table *t = s->is_json ? table_new(s->arena, json_cols, ARRAY_LEN(json_cols))
                                 : table_new(s->arena, cols, ARRAY_LEN(cols));
    struct table *types = table_new(s->arena, type_cols, ARRAY_LEN(type_cols));
    for (size_t i = 0; i < rows.n; i++) {
        top_row(s, t, &rows.v[i], data_find(&capacity, rows.v[i].name),
                count_vms(&instances, rows.v[i].name));
    }
    type_rows(s, types, &rows, &capacity);
    if (s->is_json) {
        AUTO_BUF out;
        buf_init(&out, 64u << 20);
        buf_addc(&out, "{\"nodes\":");
        table_json(t, &out);
        buf_addc(&out, ",\"instance_types\":");
        table_json(types, &out);
        buf_addc(&out, "}\n");
        fwrite(out.p, 1, out.n, stdout);
        return 0;
    }
    table_print(t, false);
    putchar('\n');
    table_print(types, false);
    return 0;
}
